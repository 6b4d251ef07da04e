# Calls Version at the endpoint of the running kubelet ten times per second, until SIGTERM. The argument is the socket of a kubelet
# without a flag. Prints then the longest time in milliseconds in which a running kubelet had no answer, and the number of answers
# of each socket. A time without a kubelet is not counted.
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;
use List::Util qw(max);
use Time::HiRes qw(sleep time);

# Longest wait for one answer in seconds. The endpoint may change meanwhile.
my $max_wait = 5;

# frame TYPE, FLAGS, PAYLOAD: returns a frame of HTTP/2. The settings belong to the connection, and all others to the one stream.
sub frame {
  my ($type, $flags, $payload) = @_;
  return pack('CnCCN', 0, length $payload, $type, $flags, $type == 4 ? 0 : 1) . $payload;
}

# A string of HPACK.
sub text { return chr(length $_[0]) . $_[0] }

# :method: POST, :scheme: http, :path, :authority, content-type, te. The message is empty.
my $headers = "\x83\x86\x04" . text('/runtime.v1.RuntimeService/Version') . "\x01" . text('localhost') . "\x0f\x10"
  . text('application/grpc') . "\x00" . text('te') . text('trailers');
my $request = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(4, 0, '') . frame(1, 4, $headers) . frame(0, 1, "\0" x 5);

# endpoint: returns the socket of the running kubelet; undef without a kubelet.
sub endpoint {
  open my $file, '<', '/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs' or return undef;
  for my $pid (<$file>) {
    chomp $pid;
    open my $line, '<', "/proc/$pid/cmdline" or next;
    my @words = split /\0/, join '', <$line>;
    next unless @words && $words[0] =~ m{/kubelet$};
    my @flags = map { m{^--container-runtime-endpoint=unix://(.*)} ? $1 : () } @words;
    return @flags ? $flags[-1] : $ARGV[0];
  }
  return undef;
}

# answers SOCKET: returns whether the socket answers a Version with a message.
sub answers {
  my $connection = IO::Socket::UNIX->new(Peer => $_[0]) or return 0;
  my ($selected, $deadline, $read) = (IO::Select->new($connection), time + $max_wait, '');
  defined syswrite $connection, $request or return 0;
  while ($selected->can_read(max(0, $deadline - time))) {
    sysread $connection, $read, 65536, length $read or return 0;
    while (length $read >= 9) {
      my ($high, $low, $type) = unpack 'CnC', $read;
      my $length = ($high << 16) + $low;
      last if length $read < 9 + $length;
      return 1 if $type == 0 && $length > 0;
      substr $read, 0, 9 + $length, '';
    }
  }
  return 0;
}

my ($unanswered, $longest, $ended, %answers) = (0, 0, 0);
$SIG{PIPE} = 'IGNORE';
$SIG{TERM} = sub { $ended = 1 };
my $last = time;
until ($ended) {
  my $socket = endpoint;
  my $answered = defined $socket && answers($socket);
  my $now = time;
  $unanswered += $now - $last if defined $socket;
  $longest = max($longest, $unanswered);
  if ($answered) {
    $unanswered = 0;
    $answers{$socket}++;
  }
  $last = $now;
  sleep 0.1;
}
printf "longest %d\n", $longest * 1000;
printf "%s %d\n", $_, $answers{$_} for sort keys %answers;
