package disagreement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/growth"
)

// sided are answers of two kinds, of which those of one kind lie together and speak of women and daughters.
func sided(n int) (in Input, cosine func(a, b string) float64) {
	in = Input{Question: "Who inherits?", Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Seed: 1}
	for i := range n {
		text := "The property is divided by the rules of the country."
		if i%2 == 0 {
			text = "Women and girls inherit less: a daughter, a wife and a mother have no share."
		}
		in.Answers[fmt.Sprint("m", i)] = text
	}
	return in, func(a, b string) float64 {
		if in.Answers[a] == in.Answers[b] {
			return 0.9
		}
		return 0.2
	}
}

func TestCluster(t *testing.T) {
	of := func(axes []Clustered, name string) Clustered {
		return axes[slices.IndexFunc(axes, func(a Clustered) bool { return a.Axis == name })]
	}
	in, cosine := sided(8)
	axes := Cluster(t.Context(), in, cosine)
	if len(axes) != len(in.Matcher.axes) {
		t.Fatalf("%d axes of %d", len(axes), len(in.Matcher.axes))
	}
	gender := of(axes, "gender")
	if gender.Correlation == nil || *gender.Correlation < 0.99 || *gender.PValue > 0.05 || gender.QValue == nil || *gender.QValue < *gender.PValue {
		t.Errorf("gender: %+v", gender)
	}
	for _, a := range axes {
		if a.Axis != "gender" && !strings.Contains(a.Axis, "famil") && a.PValue != nil && *a.PValue < 0.01 {
			t.Errorf("%s, which no answer covers: p = %v", a.Axis, *a.PValue)
		}
	}
	// Answers that lie together by chance, and not by what they cover.
	other := func(a, b string) float64 { return map[bool]float64{true: 0.9, false: 0.2}[a < "m4" == (b < "m4")] }
	if got := of(Cluster(t.Context(), in, other), "gender"); *got.PValue < 0.2 {
		t.Errorf("answers that lie together otherwise: p = %v", *got.PValue)
	}
	in, cosine = sided(4)
	if got := of(Cluster(t.Context(), in, cosine), "gender"); got.Correlation != nil || got.PValue != nil || got.QValue != nil {
		t.Errorf("four answers: %+v", got)
	}
	in, _ = sided(6)
	if got := of(Cluster(t.Context(), in, func(string, string) float64 { return 1 }), "gender"); got.Correlation != nil {
		t.Errorf("answers that all lie together: %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Cluster(ctx, in, cosine); got != nil {
		t.Error("it goes on when its context has ended")
	}
}

func TestClusterTimePerByte(t *testing.T) {
	growth.Linear(t, func(n int) func() {
		in, cosine := sided(5)
		in.Answers["m0"] = strings.Repeat("women and men ", n/14)
		return func() { Cluster(t.Context(), in, cosine) }
	})
}
