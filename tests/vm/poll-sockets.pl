# Connects to each of the unix sockets ten times per second, until SIGTERM. Prints then the longest time in milliseconds in
# which all refused.
use strict;
use warnings;
use IO::Socket::UNIX;
use Time::HiRes qw(sleep time);

my ($answered, $longest, $ended) = (time, 0, 0);
$SIG{TERM} = sub { $ended = 1 };
until ($ended) {
  my $now = time;
  $answered = $now if grep { IO::Socket::UNIX->new(Peer => $_) } @ARGV;
  $longest = $now - $answered if $now - $answered > $longest;
  sleep 0.1;
}
printf "%d\n", $longest * 1000;
