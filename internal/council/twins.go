package council

import "cmp"

// Twins are the seats of a plan that share provider and model. Their ids, personas and efforts may differ. The map
// leads from the id of each further seat of a model to the id of the model's first seat. An answer of a twin counts as
// the reviewer's own answer (ADR-007: reviewer == author_model). If the map is empty, each seat is a model of its own.
type Twins map[string]string

// TwinsOf returns the twins among seats. The function same returns the same text for all names of one model. If same is
// nil, every name is a model of its own.
func TwinsOf(seats []Member, same func(model string) string) Twins {
	twins := Twins{}
	first := map[string]string{}
	for _, seat := range seats {
		model := seat.Model
		if same != nil {
			model = same(model)
		}
		switch known, ok := first[model]; {
		case !ok:
			first[model] = seat.ID
		case known != seat.ID: // A member that also reviews stands in seats twice.
			twins[seat.ID] = known
		}
	}
	return twins
}

// Own reports whether the model of a reviewer wrote the answer of an author.
func (t Twins) Own(reviewer, author string) bool {
	return cmp.Or(t[reviewer], reviewer) == cmp.Or(t[author], author)
}

// Once returns the reviewers, but only the first reviewer of each model.
func (t Twins) Once(reviewers []Member) []Member {
	once := make([]Member, 0, len(reviewers))
	for _, r := range reviewers {
		again := false
		for _, earlier := range once {
			again = again || t.Own(r.ID, earlier.ID)
		}
		if !again {
			once = append(once, r)
		}
	}
	return once
}

// Meet reports whether any reviewer would read the answer of its twin, if slates left out only the reviewer's own
// answer.
func (t Twins) Meet(authors []string, reviewers []Member) bool {
	for _, r := range reviewers {
		for _, author := range authors {
			if author != r.ID && t.Own(r.ID, author) {
				return true
			}
		}
	}
	return false
}

// TwinsAmong returns the twins of a plan. The argument authors has the members that answered. If too few ballots would
// be left, TwinsAmong returns nil, and twins judge each other.
func (p Plan) TwinsAmong(authors []string) Twins {
	if !p.Twins.Carry(authors, p.Reviewers()) {
		return nil
	}
	return p.Twins
}

// Carry reports whether enough ballots are left if no reviewer judges an answer of its own model. Each reviewer needs
// at least two answers to compare, and each answer needs at least two reviewers.
func (t Twins) Carry(authors []string, reviewers []Member) bool {
	ballots := map[string]int{}
	for _, r := range reviewers {
		slate := 0
		for _, author := range authors {
			if !t.Own(r.ID, author) {
				ballots[author]++
				slate++
			}
		}
		if slate < 2 {
			return false
		}
	}
	for _, author := range authors {
		if ballots[author] < 2 {
			return false
		}
	}
	return true
}
