# seal.pl PROGRAM LINK: copies a program into a sealed file in memory, creates a link to it, and keeps it until the end.
# runc and crun copy themselves into such a file at each start, unless they are in one. An emulated machine translates the
# instructions of every copy again, which takes longer than all else.
use strict;
use warnings;
use File::Basename qw(basename);
use IO::Handle;

my ($program, $link) = @ARGV;
my ($memfd_create, $allow_sealing, $add_seals, $all_seals) = (319, 2, 1033, 0xf);
# probeshim knows an OCI runtime by the name of its program.
my $name = basename($program);
my $descriptor = syscall($memfd_create, $name, $allow_sealing);
die "memfd_create: $!" if $descriptor < 0;
open(my $copy, '>&=:raw', $descriptor) or die "$!";
open(my $file, '<:raw', $program) or die "$program: $!";
local $/ = \(1 << 20);
while (my $block = <$file>) {
  print $copy $block or die "$!";
}
$copy->flush();
fcntl($copy, $add_seals, $all_seals) or die "F_ADD_SEALS: $!";
symlink("/proc/$$/fd/$descriptor", $link) or die "$link: $!";
sleep;
