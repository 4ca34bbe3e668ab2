//go:build !unix

package disk

import "io/fs"

// NoFollow is the flag for opening a file that refuses a symbolic link. This system has no such flag.
const NoFollow = 0

// NoWait is the flag for opening a named pipe without waiting. This system has no such flag.
const NoWait = 0

// Foreign reports whether a file belongs to a user other than the one of this process. It returns false, because this
// system does not say to whom a file belongs.
func Foreign(fs.FileInfo) bool { return false }
