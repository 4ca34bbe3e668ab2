package bias

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
)

// VersionChange says that a member's provider began to serve another version of its model.
type VersionChange struct {
	Member   string    `json:"member"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	Start    time.Time `json:"start"`    // when the first session with To, after sessions with From, started
	Sessions int       `json:"sessions"` // counts sessions with the new version since then
}

// String returns the change as a sentence.
func (v VersionChange) String() string {
	return fmt.Sprintf("%s was served as %s until %s, then as %s in %d sessions",
		v.Member, v.From, v.Start.UTC().Format("2 January 2006"), v.To, v.Sessions)
}

// served is a version of a member that replied in a session.
type served struct{ member, version string }

// versionPair holds the versions of a reviewer and a candidate. A version is "" if the record has none.
type versionPair struct{ reviewer, candidate string }

func versionsOf(pair council.VersionPair) (v versionPair) {
	if pair.Reviewer != nil {
		v.reviewer = *pair.Reviewer
	}
	if pair.Candidate != nil {
		v.candidate = *pair.Candidate
	}
	return v
}

// version returns the index of a version pair in c.versions. A row holds only this index.
func (c *Collector) version(pair versionPair) int32 {
	index, ok := c.versionIndex[pair]
	if !ok {
		index = int32(len(c.versions))
		c.versionIndex[pair] = index
		c.versions = append(c.versions, pair)
	}
	return index
}

// served returns the versions that replied in a session, each once. Candidates come first, because they reply
// first.
func (c *Collector) served(s *session, rank []int, reviewers, candidates span) (all []served) {
	add := func(member int32, version string) {
		if v := (served{c.names[member], version}); version != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	rows := func(yield func(r *row)) {
		for k := range s.rows {
			if r := &s.rows[k]; reviewers.holds(rank[r.reviewer]) && candidates.holds(rank[r.candidate]) {
				yield(r)
			}
		}
	}
	rows(func(r *row) { add(r.candidate, c.versions[r.versions].candidate) })
	rows(func(r *row) { add(r.reviewer, c.versions[r.versions].reviewer) })
	return all
}

func (s span) holds(member int) bool { return s.from <= member && member < s.to }

// versionChanges returns the changes of version in the window, sorted by time. Changes in the same session are
// sorted by member. If a provider alternates between two versions, each change is listed once.
func (w *window) versionChanges() []VersionChange {
	changes := []VersionChange{}
	last := map[string]string{} // the last version of each member
	for k := range w.sessions {
		x := &w.sessions[k]
		first := len(changes)
		for _, v := range x.served {
			from := last[v.member]
			last[v.member] = v.version
			if from != "" && from != v.version && !slices.ContainsFunc(changes, func(c VersionChange) bool {
				return c.Member == v.member && c.From == from && c.To == v.version
			}) {
				changes = append(changes, VersionChange{Member: v.member, From: from, To: v.version, Start: x.start})
			}
		}
		slices.SortStableFunc(changes[first:], func(a, b VersionChange) int { return cmp.Compare(a.Member, b.Member) })
		for i := range changes {
			if slices.Contains(x.served, served{changes[i].Member, changes[i].To}) {
				changes[i].Sessions++
			}
		}
	}
	return changes
}

// versionsServed returns a name for each version that replied in a session.
func versionsServed(x *scores) (names []string) {
	for _, v := range x.served {
		names = append(names, v.version+" of "+v.member)
	}
	return names
}
