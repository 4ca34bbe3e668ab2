//go:build unix

package disk

import (
	"io/fs"
	"os"
	"syscall"
)

// NoFollow is the flag for opening a file that refuses a symbolic link.
const NoFollow = syscall.O_NOFOLLOW

// NoWait is the flag for opening a named pipe without waiting for a writer.
const NoWait = syscall.O_NONBLOCK

// Foreign reports whether a file belongs to a user other than the one of this process.
func Foreign(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Uid) != int64(os.Geteuid())
}
