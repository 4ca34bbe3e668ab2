package bias

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	widest            = 9   // points: the largest difference between two scores
	notableDifference = 0.1 // points: if the two sizes of an effect differ by more, both are said
)

// summary is what a report says in sentences.
type summary struct {
	headline string   // the favours, or that none is proven
	apart    []string // what else was found: none of it is a favour
}

// summarise returns the summary of the headlines.
func (c *Collector) summarise(family []Metric, sessions int) summary {
	var s summary
	var favours, untested []string
	short := ""
	tested := 0
	for i := range family {
		m := &family[i]
		switch {
		case m.Is(VerdictFavour):
			favours = append(favours, m.says())
		case m.Found():
			s.apart = append(s.apart, sentence(m.says()))
		case m.Is(VerdictInsufficient):
			short = cmp.Or(short, m.Reason)
			untested = append(untested, spaced(m.Name))
		case m.Is(VerdictNotIdentified):
			untested = append(untested, spaced(m.Name))
		}
		if m.Kind == KindFavour && m.Verdict != nil && *m.Verdict != VerdictInsufficient && *m.Verdict != VerdictNotIdentified {
			tested++
		}
	}
	most := ""
	if 2*len(untested) > len(family) {
		most = fmt.Sprintf("%s %d of %d figures untested", cmp.Or(c.o.filter(), "these records leave"), len(untested), len(family))
	}
	var parts []string
	switch {
	case len(favours) > 0:
		parts = append(parts, "Favour found: "+strings.Join(favours, "; "))
		if most != "" {
			parts = append(parts, sentence(most))
		}
	case tested > 0:
		parts = append(parts, strings.TrimSuffix("Nothing proven: "+most, ": "))
		if could := couldFind(family, sessions); could != "" {
			parts = append(parts, could)
		}
	case short != "":
		parts = append(parts, "Nothing proven: no verdict yet", sentence(short))
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

// filter returns how a sentence begins that says what the filters of the query leave. It is "" without any.
func (o *Options) filter() string {
	var all []string
	for _, f := range []struct{ name, value string }{
		{"reviewer", o.Reviewer},
		{"model", o.Model},
		{"category", o.Category},
		{"language", o.Language},
		{"council version", o.ConfigVersion},
		{"model version", o.ModelVersion},
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

// couldFind says which effects would have been found: those that all reviewers share, and those of a single one.
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
	return fmt.Sprintf("With %d sessions these would have been found in four of five such windows: %s", sessions, strings.Join(parts, "; "))
}

// effects are the least and the largest of some effects in points. Those beyond the scale do not count.
type effects struct {
	n             int
	least, most   float64
	lowest, upper string // the headlines of these
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

func (e *effects) String() string {
	text := fmt.Sprintf("%.2f points (%s)", e.least, spaced(e.lowest))
	if e.lowest != e.upper {
		text += fmt.Sprintf(" to %.2f points (%s)", e.most, spaced(e.upper))
	}
	return text
}

// spaced returns the name of a metric as people read it.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// sentence returns a text that begins with a capital letter, unless it begins with a name.
func sentence(text string) string {
	for _, word := range []string{"the ", "these ", "longer ", "answers "} {
		if strings.HasPrefix(text, word) {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return text
}

// says returns what was found at a headline.
func (m *Metric) says() string {
	who := "the reviewers"
	by := m.amount()
	up := *m.PointEstimate > 0
	if m.Subject != "" {
		who = m.SubjectName()
	}
	favour := "favour"
	verb := "favour"
	if !up {
		favour = "mark down"
		verb = "mark down"
	}
	if m.Subject != "" {
		verb = strings.Replace(strings.Replace(favour, "favour", "favours", 1), "mark ", "marks ", 1)
	}
	own := "their own"
	if m.Subject != "" {
		own = "its own"
	}
	switch m.Name {
	case selfName:
		return fmt.Sprintf("%s %s %s answers by %s", who, verb, own, by)
	case familyName:
		return fmt.Sprintf("%s %s answers of %s provider by %s", who, verb, own, by)
	case affinityName:
		reviewer, candidate, _ := strings.Cut(m.Subject, ">")
		return fmt.Sprintf("%s %s answers of %s by %s", reviewer, verb, candidate, by)
	case slopesName:
		return fmt.Sprintf("%s rewards length %s than the others, by %s", who, moreOrLess(up), by)
	case styleName:
		return fmt.Sprintf("%s %s answers that are like %s by %s", who, verb, own, by)
	case positionName:
		if m.Unit == ofPairs {
			return fmt.Sprintf("%s favours the answer shown %s by %s", who, firstOrLast(up), by)
		}
		if m.SubjectName() == m.Subject { // a reviewer
			return fmt.Sprintf("%s %s the answer that it is shown first by %s", who, verb, by)
		}
		return fmt.Sprintf("the reviewers %s %s by %s", favour, m.SubjectName(), by)
	case anchoringName:
		return fmt.Sprintf("the first answer moves the scores of the others by %+.2f %s", *m.PointEstimate, m.Unit)
	case harshnessName:
		return fmt.Sprintf("%s scores %s %s than the others: ranks do not depend on it", who, by, higherOrLower(up))
	case driftName:
		return fmt.Sprintf("%s came to score %s, by %s%s", who, higherOrLower(up), by, alongside(m.AlsoChanged))
	case lengthAssociation:
		return fmt.Sprintf("longer answers score %s by %s, which better answers may explain", higherOrLower(up), by)
	case reasoningName:
		return fmt.Sprintf("answers after longer reasoning score %s by %s, which better answers may explain", higherOrLower(up), by)
	default:
		return fmt.Sprintf("%s %+.2f %s", spaced(m.Name), *m.PointEstimate, m.Unit)
	}
}

func moreOrLess(up bool) string {
	if up {
		return "more"
	}
	return "less"
}

func firstOrLast(up bool) string {
	if up {
		return "first"
	}
	return "last"
}

func higherOrLower(up bool) string {
	if up {
		return "higher"
	}
	return "lower"
}

// amount returns the size of an effect and its interval as text.
func (m *Metric) amount() string {
	text := fmt.Sprintf("%.2f %s", math.Abs(*m.PointEstimate), m.Unit)
	if m.CILower == nil || m.CIUpper == nil {
		return text
	}
	own := ""
	if m.OwnScale != nil && math.Abs(*m.PointEstimate-*m.OwnScale) >= notableDifference {
		own = fmt.Sprintf(", %.2f on scales that end", math.Abs(*m.OwnScale))
	}
	low := *m.CILower
	high := *m.CIUpper
	if *m.PointEstimate < 0 {
		low, high = -high, -low
	}
	return fmt.Sprintf("%s (%.2f to %.2f%s)", text, low, high, own)
}
