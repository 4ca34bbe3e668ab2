// Package race is for tests that must know whether the race detector is on. It also runs tests in bubbles of
// testing/synctest with the race detector.
package race
