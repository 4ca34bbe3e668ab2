package stat

// Groups are disjoint sets of names (Galler and Fischer 1964). A name that was never united with another one is its
// own set.
type Groups map[string]string // maps a name to another one of its set

// Of returns the name that represents the set of a name.
func (g Groups) Of(name string) string {
	for {
		next, ok := g[name]
		if !ok {
			return name
		}
		if further, ok := g[next]; ok {
			g[name] = further // keeps paths short
		}
		name = next
	}
}

// Unite joins the sets of two names.
func (g Groups) Unite(a, b string) {
	if a, b = g.Of(a), g.Of(b); a != b {
		g[b] = a
	}
}
