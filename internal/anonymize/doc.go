// Package anonymize hides the authors of the answers. It names the answers with labels,
// draws the order in which each reviewer sees them, and separates texts from
// instructions in prompts.
//
// Everything but NewMarkers is a pure function of its arguments. Random choices come
// from SHA-256 and ChaCha8, whose output is specified bit by bit, and are turned into
// orders by code of this package: the same seed and the same names give the same slates
// on every platform and with every release of Go.
//
// It leaves to others what a prompt says and how a ballot is read.
package anonymize
