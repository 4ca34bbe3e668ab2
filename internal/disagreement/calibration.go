package disagreement

import (
	"fmt"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// A calibration passes if the upper bound of the share of benign sessions that are flagged is below maxShare. The
// bound is one-sided and has this confidence.
const maxShare, confidence = 0.03, 0.95

// Calibrate returns the calibration of an instrument: a model with its prompt or rule, terms, axes and threshold. A
// calibration comes from benign sessions, in which no group is treated differently. The argument sessions is the
// number of benign sessions in which the instrument could flag something. The argument flagged is the number in
// which it would have flagged something. The calibration passes if the one-sided 95 % Clopper-Pearson bound of the
// flagged share is below 3 %. If nothing is flagged, that takes 99 sessions or more.
func Calibrate(instrument council.Calibration, sessions, flagged int, now time.Time) council.Calibration {
	c := instrument
	c.Date = now.UTC()
	c.Sessions = sessions
	c.Flagged = flagged
	c.Bound = stat.ClopperPearsonUpper(flagged, sessions, confidence)
	c.Passed = c.Bound < maxShare
	return c
}

// Calibrates reports whether c is a calibration of an instrument, at any threshold.
func Calibrates(c, instrument council.Calibration) bool {
	return c.Model == instrument.Model && c.Prompt == instrument.Prompt && c.Lexicon == instrument.Lexicon &&
		slices.Equal(c.Axes, instrument.Axes)
}

// Uncalibrated returns the reason why an instrument may not flag anything. The argument c is the newest calibration.
// Uncalibrated returns nil if the instrument may flag: the calibration is of this instrument, it passed, and its
// threshold is not higher than the instrument's.
func Uncalibrated(c *council.Calibration, instrument council.Calibration, backend council.DisagreementBackend) *string {
	switch {
	case c == nil || !Calibrates(*c, instrument):
		with := instrument.Prompt
		if instrument.Lexicon != "" {
			with += " and these terms"
		}
		return new(fmt.Sprintf("nothing is flagged: %s was not calibrated with %s on these axes; "+
			"run councild report disagreement --backend %s --calibrate", instrument.Model, with, backend))
	case !c.Passed:
		return new(fmt.Sprintf("nothing is flagged: the calibration flagged %d of %d benign sessions, and the upper bound of "+
			"their share, %.1f %%, is not below %.0f %%", c.Flagged, c.Sessions, 100*c.Bound, 100*maxShare))
	case instrument.Threshold < c.Threshold:
		return new(fmt.Sprintf("nothing is flagged: the calibration was made at the threshold %v, and %v is lower",
			c.Threshold, instrument.Threshold))
	default:
		return nil
	}
}
