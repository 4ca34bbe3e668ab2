//go:build unix

package disk

import "syscall"

// NoFollow is the flag for opening a file that refuses a symbolic link.
const NoFollow = syscall.O_NOFOLLOW

// NoWait is the flag for opening a named pipe without waiting for a writer.
const NoWait = syscall.O_NONBLOCK
