//go:build !unix

package disk

import "io/fs"

// NoFollow is the flag for opening a file that refuses a symbolic link. This system has
// none.
const NoFollow = 0

// NoWait is the flag for opening a named pipe without waiting. This system has none.
const NoWait = 0

// Foreign reports whether a file belongs to another user than that of this process. This
// system does not say so.
func Foreign(fs.FileInfo) bool { return false }
