//go:build !unix

package disk

// NoFollow is a flag of opening a file that refuses a symbolic link, where the
// system has one.
const NoFollow = 0
