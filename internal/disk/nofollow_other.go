//go:build !unix

package disk

// NoFollow is a flag of opening a file that refuses a symbolic link, where the
// system has one.
const NoFollow = 0

// NoWait is a flag of opening a named pipe at once, where the system has one.
const NoWait = 0
