//go:build !unix

package disk

// NoFollow is the flag for opening a file that refuses a symbolic link. This system has
// none.
const NoFollow = 0

// NoWait is the flag for opening a named pipe without waiting. This system has none.
const NoWait = 0
