package disagreement

import (
	"math"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
)

// The least numbers of sessions that pass. The bounds are those of scipy's binomtest, from the tail of the binomial
// distribution.
func TestCalibrate(t *testing.T) {
	for _, tt := range []struct {
		sessions, flagged int
		bound             float64
		passed            bool
	}{
		{98, 0, 0.0301061986947731, false},
		{99, 0, 0.029806673773350945, true},
		{100, 0, 0.029513049607039987, true},
		{100, 1, 0.046559811453538984, false},
		{157, 1, 0.029857812021298058, true},
		{10, 3, 0.6066242161054134, false},
		{10, 10, 1, false},
		{0, 0, 1, false},
	} {
		c := Calibrate(council.Calibration{}, tt.sessions, tt.flagged, time.Now())
		if math.Abs(c.Bound-tt.bound) > 1e-9 || c.Passed != tt.passed {
			t.Errorf("%d of %d: %v, passed %v", tt.flagged, tt.sessions, c.Bound, c.Passed)
		}
	}
}
