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
	result   string   // says only whether a favour was found
	apart    []string // says what else was found, which is no favour
	could    []string // says which effects would have been found
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
			untested = append(untested, m.topic())
		case m.Is(VerdictNotIdentified):
			untested = append(untested, m.topic())
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
	s.could = couldFind(family)
	parts := []string{cmp.Or(most, "these records cannot show any favour")}
	switch {
	case len(favours) > 0:
		parts = []string{"Favour found: " + strings.Join(favours, "; ")}
		s.result = "Favour found."
		if most != "" {
			parts = append(parts, capital(most))
			s.result += " " + capital(most) + "."
		}
	case tested > 0:
		parts[0] = strings.TrimSuffix("Nothing proven: "+most, ": ")
		s.result = parts[0] + "."
		if len(s.apart) > 0 && most == "" {
			s.result = "No favour proven. Other findings:"
		}
		if len(s.could) > 0 {
			parts = append(parts, fmt.Sprintf("With %d sessions these would have been found with a probability of 80 %%: %s",
				sessions, strings.Join(s.could, "; ")))
		}
	case short != "":
		parts = []string{"Nothing proven: no verdict yet", capital(short)}
		untested = nil
		s.result = strings.Join(parts, ". ") + "."
	default:
		parts[0] = "Nothing proven: " + parts[0]
		s.result = parts[0] + "."
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
func couldFind(family []Metric) (said []string) {
	var shared, single effects
	for i := range family {
		m := &family[i]
		if m.Kind != KindFavour || m.Unit != points || m.Found() || m.MinimumDetectableEffect == nil {
			continue
		}
		if m.DetectableSingle == nil || *m.DetectableSingle != *m.MinimumDetectableEffect {
			shared.add(m.topic(), *m.MinimumDetectableEffect)
		}
		if m.DetectableSingle != nil {
			single.add(m.topic(), *m.DetectableSingle)
		}
	}
	if shared.n > 0 {
		said = append(said, "an effect of "+shared.String()+" that all reviewers share")
	}
	if single.n > 0 {
		said = append(said, "an effect of "+single.String()+" that only one reviewer has")
	}
	return said
}

// effects holds the least and the largest of some effects in points. Effects beyond the scale do not count.
type effects struct {
	n             int
	least, most   float64
	lowest, upper string // what these effects are about
}

func (e *effects) add(topic string, effect float64) {
	if effect > widest {
		return
	}
	if e.n == 0 || effect < e.least {
		e.least = effect
		e.lowest = topic
	}
	if e.n == 0 || effect > e.most {
		e.most = effect
		e.upper = topic
	}
	e.n++
}

// String returns the range of the effects, and says what those at both ends are about.
func (e *effects) String() string {
	text := fmt.Sprintf("%s points (%s)", size(e.least), e.lowest)
	if e.lowest != e.upper {
		text += fmt.Sprintf(" to %s points (%s)", size(e.most), e.upper)
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
