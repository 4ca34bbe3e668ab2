package bias

import "testing"

// TestSentences holds how each kind of figure reads, with and without an effect.
func TestSentences(t *testing.T) {
	t.Parallel()
	of := func(name, subject string, v Verdict, estimate, low, high float64) Metric {
		return Metric{
			Name: name, Subject: subject, Unit: points, Verdict: &v, Kind: kindOf(name), PointEstimate: &estimate, CILower: &low, CIUpper: &high,
		}
	}
	with := func(m Metric, change func(m *Metric)) Metric {
		change(&m)
		return m
	}
	for want, m := range map[string]Metric{
		"An answer of twice the length scores 0.4 points higher (0.3 to 0.5). The quality of the answers may explain it.": of(
			lengthAssociation, "", VerdictAssociation, 0.42, 0.3, 0.54),
		"elm scores its own answers 0.6 points higher than the others do (0.4 to 0.9).": of(selfName, "elm", VerdictFavour, 0.6, 0.4, 0.9),
		"Reviewers score their own answers 0.6 points lower than the others do (0.4 to 0.9, 0.3 on the reviewers' own scales).": with(
			of(selfName, "", VerdictFavour, -0.6, -0.9, -0.4), func(m *Metric) { m.OwnScale = new(-0.3) }),
		"Answers at place 1 of 5 score 0.3 points higher than the others (0.2 to 0.4).": of(
			positionName, "0 of 5", VerdictFavour, 0.3, 0.2, 0.4),
		"01/elm scores the answer that it is shown first 0.3 points higher than those at other places (0.2 to 0.4).": of(
			positionName, "01/elm", VerdictFavour, 0.3, 0.2, 0.4),
		"When elm judges a pair in both orders, the answer shown last wins both times more often than the answer shown first, " +
			"by a share of 0.3 of pairs (0.2 to 0.4).": with(
			of(positionName, "elm", VerdictFavour, -0.3, -0.4, -0.2), func(m *Metric) { m.Unit = ofPairs }),
		"An answer that is closer to the reviewer's own by 0.1 of similarity scores 0.3 points higher (0.2 to 0.4).": of(
			styleName, "", VerdictFavour, 0.3, 0.2, 0.4),
		"elm scores 0.5 points lower than the others on the same answers (0.4 to 0.6). Ranks do not depend on it.": of(
			harshnessName, "elm", VerdictDiffers, -0.5, -0.6, -0.4),
		"elm became 1.0 points milder over the window (0.5 to 1.5). Changed at the same time: category math (20 % to 60 %).": with(
			of(driftName, "elm", VerdictChanged, 1, 0.5, 1.5), func(m *Metric) {
				m.AlsoChanged = []Alongside{{What: AlongsideTopic, Name: "math", Before: "20 %", After: "60 %"}}
			}),
		"elm became 0.04 points harsher over the window (0.1 harsher to 0.05 milder): too small to count.": of(
			driftName, "elm", VerdictNegligible, -0.04, -0.13, 0.05),
		"No favour for another model shown: elm scores oak 0.2 points higher than the others do (0.1 lower to 0.5 higher). " +
			"An effect of 0.4 points that all reviewers share, or of 0.9 that one reviewer has alone, would have been found with a probability of 80 %.": with(
			of(affinityName, "elm>oak", VerdictInconclusive, 0.2, -0.1, 0.5), func(m *Metric) {
				m.MinimumDetectableEffect, m.DetectableSingle = new(0.4), new(0.9)
				m.Reason = m.notShown()
			}),
		"No favour for own answers shown: reviewers score their own answers 0.2 points higher than the others do (0.1 lower to 0.5 higher). " +
			"This test can show an effect, but never rule one out: its estimate is about a third of the true effect. " +
			"An effect of 0.4 points would have been found with a probability of 80 %.": with(
			of(selfName, "", VerdictInconclusive, 0.2, -0.1, 0.5), func(m *Metric) {
				m.MinimumDetectableEffect, m.Reason = new(0.4), shrinks
			}),
		"Reviewers score their own answers 0.2 points higher than the others do (0.1 to 0.3). This is not a finding: too small to count.": with(
			of(selfName, "", VerdictInconclusive, 0.2, 0.1, 0.3), func(m *Metric) { m.Reason = "too small to count" }),
		"Difference in level: a verdict needs 20 sessions, and there are 12.": with(of(harshnessName, "", VerdictInsufficient, 0, 0, 0), func(m *Metric) {
			m.PointEstimate, m.Reason = nil, "a verdict needs 20 sessions, and there are 12"
		}),
		"Effect of the place cannot be told: one order.": with(of(positionName, "", VerdictNotIdentified, 0, 0, 0), func(m *Metric) {
			m.PointEstimate, m.Reason = nil, "one order"
		}),
		"A new one: 1.50 points.": of("a_new_one", "", VerdictFavour, 1.5, 1, 2),
		"":                        with(of("agreement", "", VerdictFavour, 1.5, 1, 2), func(m *Metric) { m.Verdict = nil }),
	} {
		if got := m.sentence(); got != want {
			t.Errorf("%s of %q reads %q, want %q", m.Name, m.Subject, got, want)
		}
	}
}

// Sentences hold together where a part of them is missing, or is a sentence already.
func TestPartsOfSentences(t *testing.T) {
	t.Parallel()
	estimate := 0.6
	m := Metric{Name: selfName, Subject: "elm", Kind: kindOf(selfName), Verdict: new(VerdictFavour), PointEstimate: &estimate}
	for got, want := range map[string]string{
		m.sentence():       "elm scores its own answers 0.6 points higher than the others do.", // no interval
		ended("It fits."):  "It fits.",
		ended(capital("")): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
