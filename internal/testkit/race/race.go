// Package race is for tests that have to know whether the race detector watches them, and for tests in bubbles of
// testing/synctest.
package race
