package bias

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Alongside describes another change at the time when a reviewer's scores changed.
type Alongside struct {
	What AlongsideKind `json:"what"`
	// Name is a category, a member id, or "VERSION of MEMBER".
	Name   string `json:"name"`
	Before string `json:"before"` // the share of the earlier sessions in which Name occurs, such as "20 %"
	After  string `json:"after"`
}

// AlongsideKind says what kind of thing changed together with a reviewer's scores.
type AlongsideKind string

// The kinds of change.
const (
	AlongsideTopic  AlongsideKind = "category" // the share of the sessions that have a category
	AlongsideMember AlongsideKind = "member"   // the share of the sessions in which a member took part
	// AlongsideVersion is the share of the sessions in which a version of a member's model replied.
	AlongsideVersion AlongsideKind = "version"
)

const (
	// nearby is the number of sessions before a change that are compared with the same number of sessions after it.
	nearby = preliminaryFrom
	// notable is the smallest difference, between the share before a change and the share after it, that is
	// reported.
	notable = 0.5
)

// alongside compares the sessions before a change with the sessions after it. It returns each category, member and
// version whose share of the sessions differs by at least notable.
func (w *window) alongside(before, after stretch) []Alongside {
	found := []Alongside{}
	for _, of := range []struct {
		what AlongsideKind
		in   func(x *scores) []string
	}{{AlongsideTopic, topicOf}, {AlongsideMember, w.membersOf}, {AlongsideVersion, versionsServed}} {
		earlier := w.shares(before, of.in)
		later := w.shares(after, of.in)
		names := map[string]bool{}
		for _, shares := range []map[string]float64{earlier, later} {
			for name := range shares {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if a, b := earlier[name], later[name]; a-b >= notable || b-a >= notable {
				found = append(found, Alongside{of.what, name, percent(a), percent(b)})
			}
		}
	}
	return found
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// topicOf returns the category of a session, or nil if its caller named none.
func topicOf(x *scores) []string {
	if x.category == "" {
		return nil
	}
	return []string{x.category}
}

// membersOf returns the ids of the reviewers and candidates of a session.
func (w *window) membersOf(x *scores) (ids []string) {
	all := slices.Concat(x.reviewers, x.candidates)
	slices.Sort(all)
	for _, member := range slices.Compact(all) {
		ids = append(ids, w.names[member])
	}
	return ids
}

// shares returns, for each name that occurs, the share of the sessions in which it occurs.
func (w *window) shares(sessions stretch, in func(x *scores) []string) map[string]float64 {
	shares := map[string]float64{}
	for _, s := range sessions {
		for _, name := range in(&w.sessions[s]) {
			shares[name] += 1 / float64(len(sessions))
		}
	}
	return shares
}

// Found reports whether there was a change.
func (c ChangePoint) Found() bool { return c.Verdict == VerdictChanged }

// says returns a sentence about a change point that was found: who changed, since when, and what else changed then.
func (c *ChangePoint) says() string {
	return fmt.Sprintf("%s scores %s since %s, by %s points.%s", c.ReviewerID, higherOrLower(c.After > c.Before),
		c.Start.UTC().Format("2 January 2006"), size(c.After-c.Before), alongside(c.AlsoChanged))
}

// alongside returns a sentence that lists the given changes, with a space before it. It returns "" if there are none.
func alongside(changed []Alongside) string {
	if len(changed) == 0 {
		return ""
	}
	texts := make([]string, len(changed))
	for i, a := range changed {
		texts[i] = fmt.Sprintf("%s %s (%s to %s)", a.What, a.Name, a.Before, a.After)
	}
	return " Changed at the same time: " + strings.Join(texts, ", ") + "."
}

// thirds returns the first and the last third of a stretch.
func (part stretch) thirds() (before, after stretch) {
	n := len(part) / 3
	return part[:n], part[len(part)-n:]
}

// keepAlongside clears AlsoChanged in a metric and in each of its members, unless the verdict on it is that there
// is an effect.
func (m *Metric) keepAlongside() {
	if !m.Found() {
		m.AlsoChanged = nil
	}
	for i := range m.Members {
		m.Members[i].keepAlongside()
	}
}

// around returns two parts of a stretch: its last sessions that started before a time, and its first sessions that
// started at that time or later. Each part has at most nearby sessions.
func (part stretch) around(w *window, at time.Time) (before, after stretch) {
	k, _ := slices.BinarySearchFunc(part, at, func(s int, at time.Time) int { return w.sessions[s].start.Compare(at) })
	return part[max(0, k-nearby):k], part[k:min(len(part), k+nearby)]
}
