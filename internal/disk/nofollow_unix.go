//go:build unix

package disk

import "syscall"

// NoFollow is a flag of opening a file that refuses a symbolic link.
const NoFollow = syscall.O_NOFOLLOW
