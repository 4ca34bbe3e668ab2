package bias

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// base returns the name of the headline that a figure belongs to.
func (m *Metric) base() string {
	name, _, _ := strings.Cut(m.Name, "|")
	return strings.TrimSuffix(name, commonSuffix)
}

// Topic returns in words what the headline with a name is about.
func Topic(name string) string { return (&Metric{Name: name}).topic() }

// topic returns in words what a figure is about.
func (m *Metric) topic() string {
	topics := map[string]string{
		positionName:                      "effect of the place",
		"position_effect":                 "effect of the place",
		"position_under_shared_order":     "place, in one order for all",
		selfName:                          "favour for own answers",
		familyName:                        "favour for own family",
		affinityName:                      "favour for another model",
		"pair":                            "favour for another model",
		lengthAssociation:                 "effect of length",
		reasoningName:                     "effect of reasoning",
		slopesName:                        "reward for length",
		styleName:                         "favour for own style",
		harshnessName:                     "difference in level",
		anchoringName:                     "pull of the first answer",
		driftName:                         "change of level",
		similarName:                       "agreement of ballots",
		"pooled_length_score_correlation": "length and score",
		"position_score_correlation":      "place and score",
	}
	return cmp.Or(topics[m.base()], spaced(m.base()))
}

// speak sets the topics and sentences of metrics and their members.
func speak(metrics []Metric) {
	for i := range metrics {
		m := &metrics[i]
		m.Topic = m.topic()
		m.Sentence = m.sentence()
		speak(m.Members)
	}
}

// sentence says what was found or, if nothing was, what could have been found. It is "" without a verdict.
func (m *Metric) sentence() string {
	if m.Verdict == nil {
		return ""
	}
	if m.PointEstimate == nil {
		cannot := ""
		if *m.Verdict == VerdictNotIdentified {
			cannot = " cannot be told"
		}
		return ended(capital(m.topic()) + cannot + ": " + m.Reason)
	}
	said := m.effect()
	if m.Verdict.Found() {
		return m.named(said) + m.Kind.limits() + alongside(m.AlsoChanged)
	}
	if *m.Verdict == VerdictNegligible || *m.Verdict == VerdictAlike {
		return m.named(said + ": too small to count")
	}
	rest, none := strings.CutPrefix(m.Reason, noEffect)
	if *m.Verdict != VerdictInconclusive || !none {
		return m.named(said) + " This is not a finding: " + ended(m.Reason)
	}
	said = "No " + m.topic() + " shown: " + ended(said)
	if rest = strings.TrimPrefix(rest, "; "); rest != "" && m.Reason != m.notShown() {
		said += " " + ended(capital(rest))
	}
	if m.MinimumDetectableEffect != nil {
		said += " " + m.wouldFind()
	}
	return said
}

// limits returns a sentence, with a space before it, that says what a found effect does not prove.
func (k Kind) limits() string {
	switch k {
	case KindAssociation:
		return " The quality of the answers may explain it."
	case KindLevel:
		return " Ranks do not depend on it."
	case KindFavour, KindChange, KindDescription:
	}
	return ""
}

// wouldFind says which effect the test would have found.
func (m *Metric) wouldFind() string {
	who := ""
	if s := m.DetectableSingle; s != nil && *s > *m.MinimumDetectableEffect {
		who = " that all reviewers share, or of " + size(*s) + " that one reviewer has alone,"
	}
	return fmt.Sprintf("An effect of %s %s%s would have been found with a probability of 80 %%.",
		size(*m.MinimumDetectableEffect), m.Unit, who)
}

// effect says which effect a figure has, without a verdict.
func (m *Metric) effect() string {
	one := "reviewers score"
	own := "their own"
	if m.Subject != "" {
		one = m.Subject + " scores"
		own = "its own"
	}
	name := m.base()
	switch {
	case name == positionName && m.Unit == ofPairs:
		better, worse := "first", "last"
		if *m.PointEstimate < 0 {
			better, worse = worse, better
		}
		return fmt.Sprintf("when %s judges a pair in both orders, the answer shown %s wins both times more often than the answer shown %s, "+
			"by a share of %s of pairs%s", m.Subject, better, worse, size(*m.PointEstimate), m.interval("for the first", "for the last"))
	case name == positionName && m.SubjectName() == m.Subject: // of one reviewer
		return m.scored(one+" the answer that it is shown first", " than those at other places")
	case name == positionName || name == "position_effect":
		return m.scored("answers at "+m.SubjectName()+" score", " than the others")
	case name == affinityName || name == "pair":
		reviewer, candidate, _ := strings.Cut(m.Subject, ">")
		return m.scored(reviewer+" scores "+candidate, " than the others do")
	case name == harshnessName:
		return m.scored(one, " than the others on the same answers")
	case name == selfName:
		return m.scored(one+" "+own+" answers", " than the others do")
	case name == familyName:
		return m.scored(one+" other answers of "+own+" family", " than the others do")
	case name == slopesName:
		return m.scored(one+" an answer of twice the length", " than the others do")
	case name == lengthAssociation:
		return m.scored("an answer of twice the length scores", "")
	case name == reasoningName:
		return m.scored("an answer with twice the reasoning scores", "")
	case name == styleName:
		return m.scored("an answer that is closer to the reviewer's own by 0.1 of similarity scores", "")
	case name == anchoringName:
		return m.scored("for each point that the first answer is better, the answers after it score", "")
	case name == driftName:
		return m.points(m.Subject+" became", "milder", "harsher", " over the window")
	}
	who := ""
	if m.Subject != "" {
		who = " of " + m.Subject
	}
	return fmt.Sprintf("%s%s: %.2f %s", m.topic(), who, *m.PointEstimate, m.Unit)
}

// scored says by how many points the score is higher or lower.
func (m *Metric) scored(who, than string) string { return m.points(who, "higher", "lower", than) }

// points returns an effect in points as text, with its interval and, if it differs, its size on the reviewers' own
// scales.
func (m *Metric) points(before, more, less, after string) string {
	way := more
	if *m.PointEstimate < 0 {
		way = less
	}
	return fmt.Sprintf("%s %s points %s%s%s", before, size(*m.PointEstimate), way, after, m.interval(more, less))
}

// interval returns an interval as text. If the interval includes 0, each end has a direction.
func (m *Metric) interval(more, less string) string {
	if m.CILower == nil || m.CIUpper == nil {
		return ""
	}
	own := ""
	if m.OwnScale != nil && math.Abs(*m.PointEstimate-*m.OwnScale) >= notableDifference {
		own = ", " + size(*m.OwnScale) + " on the reviewers' own scales"
	}
	low := *m.CILower
	high := *m.CIUpper
	if low < 0 && high > 0 {
		return fmt.Sprintf(" (%s %s to %s %s%s)", size(low), less, size(high), more, own)
	}
	ends := []float64{math.Abs(low), math.Abs(high)}
	slices.Sort(ends)
	return fmt.Sprintf(" (%s to %s%s)", size(ends[0]), size(ends[1]), own)
}

// size returns the size of an effect with one digit after the point, or with two if it is small.
func size(x float64) string {
	digits := 1
	if x = math.Abs(x); x < 0.095 {
		digits = 2
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// named returns a text as a sentence, with a capital letter and a full stop. If the text begins with the name of a
// model, the name keeps its case.
func (m *Metric) named(text string) string {
	first, _, _ := strings.Cut(m.Subject, ">")
	if first == "" || !strings.HasPrefix(text, first) {
		text = capital(text)
	}
	return ended(text)
}

func capital(text string) string {
	for i, r := range text {
		return string(unicode.ToUpper(r)) + text[i+len(string(r)):]
	}
	return text
}

// ended returns a text with a full stop, unless the text already ends with one, or with "!" or "?".
func ended(text string) string {
	if text == "" || strings.ContainsAny(text[len(text)-1:], ".!?") {
		return text
	}
	return text + "."
}
