package council_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
)

// seats returns seats from "id=model id=model"; an id alone is its model.
func seats(text string) (members []council.Member) {
	for name := range strings.FieldsSeq(text) {
		id, model, named := strings.Cut(name, "=")
		if !named {
			model = council.ModelOf(id)
		}
		members = append(members, council.Member{ID: id, Model: model})
	}
	return members
}

func names(members []council.Member) string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

func TestTwins(t *testing.T) {
	for _, tt := range []struct {
		name, members, reviewers string
		once                     string // who reviews by the rule
		carry, meet              bool
	}{
		{"no twins", "a b c", "a b c", "a b c", true, false},
		{"two members", "a b", "a b", "a b", false, false},
		{"two of four", "a a#2 b c", "a a#2 b c", "a b c", true, true},
		{"apart", "b a c a#2", "b a c a#2", "b a c", true, true},
		{"two of three", "a a#2 b", "a a#2 b", "a b", false, true},
		{"two and two", "a a#2 b b#2", "a a#2 b b#2", "a b", false, true},
		{"two, two and one", "a a#2 b b#2 c", "a a#2 b b#2 c", "a b c", true, true},
		{"three of six", "a a#2 a#3 b c d", "a a#2 a#3 b c d", "a b c d", true, true},
		{"three of four", "a a#2 a#3 b", "a a#2 a#3 b", "a b", false, true},
		{"one model", "a a#2 a#3", "a a#2 a#3", "a", false, true},
		{"ids of a roster", "x=a y=a b c", "y=a x=a b c", "y b c", true, true},
		{"reviewers from outside", "a a#2 b", "c d", "c d", true, false},
		{"one reviewer from outside", "a a#2 b", "c", "c", false, false},
		{"a twin from outside", "x=a b c", "y=a b c d", "y b c d", true, true},
		{"twins from outside", "a b", "c c#2 d", "c d", true, false},
		{"nothing", "", "", "", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			members, reviewers := seats(tt.members), seats(tt.reviewers)
			twins := council.TwinsOf(slices.Concat(members, reviewers), nil)
			once := twins.Once(reviewers)
			authors := strings.Fields(names(members))
			if got := names(once); got != tt.once {
				t.Errorf("%s review, want %s", got, tt.once)
			}
			if got := twins.Carry(authors, once); got != tt.carry {
				t.Errorf("they carry a ranking: %v", got)
			}
			if got := twins.Meet(authors, reviewers); got != tt.meet {
				t.Errorf("twins meet: %v", got)
			}
		})
	}
}

func TestTwinsUnderTwoNames(t *testing.T) {
	same := func(model string) string { return strings.TrimPrefix(model, "again:") }
	twins := council.TwinsOf(seats("x=m y=again:m z=other:m"), same)
	if !twins.Own("x", "y") || !twins.Own("y", "x") || !twins.Own("y", "y") || twins.Own("x", "z") || twins.Own("z", "y") {
		t.Errorf("twins: %v", twins)
	}
}
