// attributes prints the attributes of its process, also those that /proc does not show, one per line. Two processes of a
// container with the same attributes print the same text.
package main

import (
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"unsafe"
)

// Options of prctl(2) that read an attribute into their result.
var returned = map[string]uintptr{
	"dumpable":     3,
	"keep_caps":    7,
	"timing":       13,
	"seccomp":      21,
	"securebits":   27,
	"timer_slack":  30,
	"no_new_privs": 39,
	"thp_disable":  42,
	"io_flusher":   58,
	"mdwe":         66,
	"spec_store":   52,
	"mce_kill":     34,
}

// Options of prctl(2) that store an attribute. The signal at the death of the parent is the only one that differs between a command
// of probeshim and one of the runtime.
var stored = map[string]uintptr{"child_subreaper": 37, "tsc": 25}

// Files of /proc/self. Go changes the handlers of signals and the soft limit of open files in each process alike.
var files = []string{
	"cgroup", "limits", "loginuid", "sessionid", "oom_score_adj", "personality", "coredump_filter", "environ", "uid_map",
	"gid_map", "setgroups", "attr/current", "attr/exec", "mountinfo",
}

// Options of the file system of cgroups. They are those of the node, and crun resets them with each container.
var cgroupOptions = regexp.MustCompile(`(?m) - cgroup2 .*$`)

// Number of the device /dev/null.
const nullDevice = 0x103

func main() {
	var lines []string
	line := func(name string, value any) { lines = append(lines, fmt.Sprintf("%s: %v", name, value)) }
	for name, option := range returned {
		value, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, option, 0, 0, 0, 0, 0)
		line("prctl "+name, fmt.Sprint(int(value), errno))
	}
	for name, option := range stored {
		var value int32
		_, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, option, uintptr(unsafe.Pointer(&value)), 0, 0, 0, 0)
		line("prctl "+name, fmt.Sprint(value, errno))
	}
	for capability := uintptr(0); capability < 64; capability++ {
		bounding, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, 23, capability, 0, 0, 0, 0)
		if errno != 0 {
			break
		}
		ambient, _, _ := syscall.Syscall6(syscall.SYS_PRCTL, 47, 1, capability, 0, 0, 0)
		line(fmt.Sprintf("capability %02d", capability), fmt.Sprint(bounding, ambient))
	}
	line("session keyring", keyring(-3))
	line("user session keyring", keyring(-5))
	groups, err := syscall.Getgroups()
	line("ids", fmt.Sprint(os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), groups, err))
	session, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	line("leads its session", int(session) == os.Getpid())
	line("leads its group", syscall.Getpgrp() == os.Getpid())
	line("parent is in the namespace", os.Getppid() != 0)
	priority, _ := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	line("priority", priority)
	ioprio, _, _ := syscall.Syscall(252, 1, 0, 0)
	line("io priority", ioprio)
	policy, _, _ := syscall.Syscall(syscall.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	line("scheduler", policy)
	umask := syscall.Umask(0)
	syscall.Umask(umask)
	line("umask", fmt.Sprintf("%o", umask))
	directory, err := os.Getwd()
	line("working directory", fmt.Sprint(directory, err))
	line("descriptors", descriptors())
	for _, name := range files {
		text, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			text = []byte(err.(*os.PathError).Err.Error())
		}
		if name == "mountinfo" {
			text = cgroupOptions.ReplaceAll(text, nil)
		}
		line(name, fmt.Sprintf("%q", text))
	}
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "user", "uts"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		line("namespace "+name, fmt.Sprint(link, err))
	}
	line("status", status())
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

// keyring returns the serial and the description of a special keyring.
func keyring(id int) string {
	serial, _, errno := syscall.Syscall(syscall.SYS_KEYCTL, 0, uintptr(id), 0)
	if errno != 0 {
		return errno.Error()
	}
	description := make([]byte, 256)
	length, _, errno := syscall.Syscall6(syscall.SYS_KEYCTL, 6, serial, uintptr(unsafe.Pointer(&description[0])), 256, 0, 0)
	if errno != 0 {
		return errno.Error()
	}
	text := string(description[:length])
	if strings.HasSuffix(text, ";_ses\x00") {
		// crun leaves a command the keyring of the daemon that has started it, which systemd has created.
		return text
	}
	return fmt.Sprint(serial, " ", text)
}

// descriptors returns the kind, the mode and the owner of each descriptor that the process has been given.
func descriptors() string {
	var found []string
	for number := 0; number < 64; number++ {
		var stat syscall.Stat_t
		link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", number))
		if syscall.Fstat(number, &stat) != nil || strings.HasPrefix(link, "anon_inode:") {
			continue
		}
		if stat.Mode&syscall.S_IFMT == syscall.S_IFCHR && stat.Rdev == nullDevice {
			// crun makes the user of each command the owner of the node's /dev/null, which all containers share.
			stat.Uid, stat.Gid = 0, 0
		}
		flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(number), syscall.F_GETFL, 0)
		found = append(found, fmt.Sprintf("%d %o %d %d %x %x", number, stat.Mode, stat.Uid, stat.Gid, stat.Rdev, flags))
	}
	return strings.Join(found, ", ")
}

// status returns the lines of /proc/self/status that do not change while the process runs.
func status() string {
	text, _ := os.ReadFile("/proc/self/status")
	var kept []string
	for _, line := range strings.Split(string(text), "\n") {
		name, _, _ := strings.Cut(line, ":")
		switch name {
		case "Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
			"Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "Cpus_allowed", "Mems_allowed",
			"SigBlk", "SigIgn", "TracerPid", "THP_enabled":
			kept = append(kept, line)
		}
	}
	return fmt.Sprintf("%q", strings.Join(kept, "\n"))
}
