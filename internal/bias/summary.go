package bias

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

const (
	widest = 9 // the largest difference between two scores, in points
	// notableDifference is the least difference between two sizes of an effect for which the text has both, in
	// points. One size is in points as if scales had no ends. The other is in points on the reviewers' own scales.
	notableDifference = 0.1
)

// summary holds what a report says in sentences.
type summary struct {
	headline string   // names the favours, or says that none is proven
	apart    []string // says what else was found, which is no favour
}

// summarise returns the summary of the headlines in family, over that number of sessions.
func (c *Collector) summarise(family []Metric, sessions int) summary {
	var s summary
	var favours, untested []string
	short := ""
	tested := 0
	for i := range family {
		m := &family[i]
		switch {
		case m.Is(VerdictFavour):
			favours = append(favours, m.effect())
		case m.Found():
			s.apart = append(s.apart, m.sentence())
		case m.Is(VerdictInsufficient):
			short = cmp.Or(short, m.Reason)
			untested = append(untested, spaced(m.Name))
		case m.Is(VerdictNotIdentified):
			untested = append(untested, spaced(m.Name))
		}
		if m.Kind == KindFavour && m.wasTested() {
			tested++
		}
	}
	most := ""
	if 2*len(untested) > len(family) {
		left := cmp.Or(c.o.filter(), "these records leave")
		most = fmt.Sprintf("%s %d of %d figures untested", left, len(untested), len(family))
	}
	var parts []string
	switch {
	case len(favours) > 0:
		parts = append(parts, "Favour found: "+strings.Join(favours, "; "))
		if most != "" {
			parts = append(parts, capital(most))
		}
	case tested > 0:
		parts = append(parts, strings.TrimSuffix("Nothing proven: "+most, ": "))
		if could := couldFind(family, sessions); could != "" {
			parts = append(parts, could)
		}
	case short != "":
		parts = append(parts, "Nothing proven: no verdict yet", capital(short))
		untested = nil
	default:
		parts = append(parts, "Nothing proven: "+cmp.Or(most, "these records cannot tell any favour"))
	}
	if len(untested) > 0 {
		parts = append(parts, "Not tested: "+strings.Join(untested, ", "))
	}
	s.headline = strings.Join(parts, ". ")
	return s
}

// wasTested reports whether the metric has a verdict that rests on a test.
func (m *Metric) wasTested() bool {
	return m.Verdict != nil && *m.Verdict != VerdictInsufficient && *m.Verdict != VerdictNotIdentified
}

// filter returns the beginning of a sentence about the records that the filters of the query leave. It is ""
// without filters.
func (o *Options) filter() string {
	var all []string
	for _, f := range []struct{ name, value string }{
		{"reviewer", o.Reviewer},
		{"model", o.Model},
		{"category", o.Category},
		{"language", o.Language},
		{"council version", o.ConfigVersion},
		{"model version", o.ModelVersion},
		{"source", o.Source},
	} {
		if f.value != "" {
			all = append(all, f.name+" "+f.value)
		}
	}
	if !o.Since.IsZero() {
		all = append(all, "since "+o.Since.UTC().Format(time.DateOnly))
	}
	if !o.Until.IsZero() {
		all = append(all, "until "+o.Until.UTC().Format(time.DateOnly))
	}
	if len(all) == 0 {
		return ""
	}
	return "the filter (" + strings.Join(all, ", ") + ") leaves"
}

// couldFind says which effects the tests would have found: those that all reviewers share, and those of a single
// reviewer.
func couldFind(family []Metric, sessions int) string {
	var shared, single effects
	for i := range family {
		m := &family[i]
		if m.Kind != KindFavour || m.Unit != points || m.Found() || m.MinimumDetectableEffect == nil {
			continue
		}
		if m.DetectableSingle == nil || *m.DetectableSingle != *m.MinimumDetectableEffect {
			shared.add(m.Name, *m.MinimumDetectableEffect)
		}
		if m.DetectableSingle != nil {
			single.add(m.Name, *m.DetectableSingle)
		}
	}
	var parts []string
	if shared.n > 0 {
		parts = append(parts, "an effect that all reviewers share of "+shared.String())
	}
	if single.n > 0 {
		parts = append(parts, "an effect of a single reviewer of "+single.String())
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("With %d sessions these would have been found in four of five such windows: %s",
		sessions, strings.Join(parts, "; "))
}

// effects holds the least and the largest of some effects in points. Effects beyond the scale do not count.
type effects struct {
	n             int
	least, most   float64
	lowest, upper string // the headlines with these effects
}

func (e *effects) add(headline string, effect float64) {
	if effect > widest {
		return
	}
	if e.n == 0 || effect < e.least {
		e.least = effect
		e.lowest = headline
	}
	if e.n == 0 || effect > e.most {
		e.most = effect
		e.upper = headline
	}
	e.n++
}

// String returns the range of the effects, with the headlines at both ends.
func (e *effects) String() string {
	text := fmt.Sprintf("%.2f points (%s)", e.least, spaced(e.lowest))
	if e.lowest != e.upper {
		text += fmt.Sprintf(" to %.2f points (%s)", e.most, spaced(e.upper))
	}
	return text
}

// spaced returns the name of a metric as people read it.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

func higherOrLower(up bool) string {
	if up {
		return "higher"
	}
	return "lower"
}
