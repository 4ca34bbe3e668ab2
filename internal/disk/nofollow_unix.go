//go:build unix

package disk

import "syscall"

// NoFollow is a flag of opening a file that refuses a symbolic link.
const NoFollow = syscall.O_NOFOLLOW

// NoWait is a flag of opening a named pipe at once, also while nobody writes to it.
const NoWait = syscall.O_NONBLOCK
