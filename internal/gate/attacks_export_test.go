package gate

// OutsideCode is outsideCode for tests outside of the package.
func OutsideCode(text string) string { return outsideCode(text) }
