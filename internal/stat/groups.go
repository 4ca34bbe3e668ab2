package stat

// Groups are disjoint sets of names (Galler and Fischer 1964). A name that was never united with another one is a set of its own.
type Groups map[string]string // from a name to another one of its set

// Of returns the name that stands for the set of a name.
func (g Groups) Of(name string) string {
	for {
		next, ok := g[name]
		if !ok {
			return name
		}
		if further, ok := g[next]; ok {
			g[name] = further // so that paths stay short
		}
		name = next
	}
}

// Unite makes one set of those of two names.
func (g Groups) Unite(a, b string) {
	if a, b = g.Of(a), g.Of(b); a != b {
		g[b] = a
	}
}
