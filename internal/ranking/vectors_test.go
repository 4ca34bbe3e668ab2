package ranking

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"os"
	"slices"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

// fraction is an exact value in the reference files.
type fraction struct {
	Num, Den int64
	Float    float64
}

func (f fraction) rat() *big.Rat { return big.NewRat(f.Num, f.Den) }

// session holds the fields that the cases of two reference files share.
type session struct {
	Name         string
	LabelToModel map[string]string `json:"label_to_model"`
	Ballots      []struct {
		Model     string
		Ranking   []any // labels, or lists of labels that tie
		Abstained bool
	}
	ExcludeSelf *bool `json:"exclude_self"`
}

// options returns the case under a policy. Every reviewer was shown all candidates.
// Where the own answer counts, the reviewer gets a name that no candidate has.
func (s session) options(policy council.PartialPolicy) Options {
	o := Options{
		Candidates: slices.Sorted(maps.Values(s.LabelToModel)),
		Asked:      map[string]int{},
		Policy:     policy,
	}
	for _, b := range s.Ballots {
		v := Vote{Reviewer: b.Model, Shown: o.Candidates}
		if s.ExcludeSelf != nil && !*s.ExcludeSelf {
			v.Reviewer = "reviewer " + b.Model
		}
		for _, place := range b.Ranking {
			labels, ok := place.([]any)
			if !ok {
				labels = []any{place}
			}
			tied := make([]string, 0, len(labels))
			for _, label := range labels {
				tied = append(tied, s.LabelToModel[label.(string)]) // "" for an unknown label
			}
			v.Places = append(v.Places, tied)
		}
		for _, candidate := range o.Candidates {
			if candidate != v.Reviewer {
				o.Asked[candidate]++
			}
		}
		if !b.Abstained {
			o.Votes = append(o.Votes, v)
		}
	}
	return o
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// exactly compares big.Rats by value.
var exactly = cmp.Comparer(func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })

func TestBordaReferenceValues(t *testing.T) {
	type standing struct {
		Model           string
		BordaScore      fraction `json:"borda_score"`
		BordaNormalized fraction `json:"borda_normalized"`
		VoteCount       int      `json:"vote_count"`
		WinCount        fraction `json:"win_count"`
		Confidence      string
		FinalRank       int `json:"final_rank"`
	}
	var reference struct {
		Cases []struct {
			session
			Available []standing
			TiedLast  []standing `json:"tied_last"`
		}
	}
	read(t, "borda.json", &reference)
	if len(reference.Cases) != 21 {
		t.Errorf("%d cases", len(reference.Cases))
	}
	for _, tc := range reference.Cases {
		for policy, want := range map[council.PartialPolicy][]standing{
			council.PolicyAvailable: tc.Available, council.PolicyTiedLast: tc.TiedLast,
		} {
			t.Run(fmt.Sprintf("%s/%s", tc.Name, policy), func(t *testing.T) {
				o := tc.options(policy)
				got := Tally(o).Standings
				c := newCount(o, policy)
				sum := c.sum()
				if len(got) != len(want) {
					t.Fatalf("%d standings, want %d", len(got), len(want))
				}
				for i, w := range want {
					g := got[i]
					rounded := council.Standing{Model: w.Model, VoteCount: w.VoteCount, WinCount: w.WinCount.Float, VoteCoverage: w.Confidence}
					if w.VoteCount > 0 { // without votes the reference has zeros
						rounded.BordaScore, rounded.BordaNormalized, rounded.FinalRank = &w.BordaScore.Float, &w.BordaNormalized.Float, &w.FinalRank
					}
					if diff := cmp.Diff(rounded, g); diff != "" {
						t.Errorf("standing %d (-want +got):\n%s", i, diff)
					}
					s := sum[slices.Index(c.candidates, w.Model)]
					normalized := big.NewRat(s.points, c.unit*max(s.votes, 1))
					score := new(big.Rat).Mul(normalized, big.NewRat(int64(len(want)-1), 1))
					exact := []*big.Rat{score, normalized, big.NewRat(s.wins, c.winUnit)}
					if diff := cmp.Diff(
						[]*big.Rat{w.BordaScore.rat(), w.BordaNormalized.rat(), w.WinCount.rat()}, exact, exactly,
					); diff != "" {
						t.Errorf("%s: score, normalized, wins (-want +got):\n%s", w.Model, diff)
					}
				}
			})
		}
	}
}

func TestSupportReferenceValues(t *testing.T) {
	type outcome struct {
		Winner      map[string]fraction `json:"p_winner"`
		LeaveOneOut map[string][]string `json:"leave_one_ballot_out_winner"`
	}
	var reference struct {
		Cases []struct {
			session
			Available outcome
			TiedLast  outcome `json:"tied_last"`
		}
	}
	read(t, "winner_bootstrap.json", &reference)
	if len(reference.Cases) != 4 {
		t.Errorf("%d cases", len(reference.Cases))
	}
	for _, tc := range reference.Cases {
		for policy, want := range map[council.PartialPolicy]outcome{
			council.PolicyAvailable: tc.Available, council.PolicyTiedLast: tc.TiedLast,
		} {
			t.Run(fmt.Sprintf("%s/%s", tc.Name, policy), func(t *testing.T) {
				o := tc.options(policy)
				c := newCount(o, policy)
				exact := c.exactSupport(0)
				for _, got := range support(o, 0) {
					w := want.Winner[got.Model] // the zero fraction where it never wins
					w.Den = max(w.Den, 1)
					j := slices.Index(c.candidates, got.Model)
					if got.Support != w.Float || exact[j].Cmp(w.rat()) != 0 {
						t.Errorf("%s: %v = %v, want %+v", got.Model, exact[j], got.Support, w)
					}
				}
				without := map[string][]string{}
				for _, l := range newCount(o, policy).leaveOneOut() {
					without["without "+l.Reviewer] = l.Winners
				}
				if diff := cmp.Diff(want.LeaveOneOut, without); diff != "" {
					t.Errorf("winners without one ballot (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestKendallReferenceValues(t *testing.T) {
	var reference struct {
		Tol   float64
		Cases []struct {
			Midranks [][]float64
			W        float64
		}
	}
	read(t, "kendall_w.json", &reference)
	if len(reference.Cases) != 4 {
		t.Errorf("%d cases", len(reference.Cases))
	}
	for i, tc := range reference.Cases {
		var o Options
		for j := range tc.Midranks[0] {
			o.Candidates = append(o.Candidates, fmt.Sprint("candidate ", j))
		}
		for r, ranks := range tc.Midranks {
			places := map[float64][]string{}
			for j, rank := range ranks {
				places[rank] = append(places[rank], o.Candidates[j])
			}
			v := Vote{Reviewer: fmt.Sprint("reviewer ", r), Shown: o.Candidates}
			for _, rank := range slices.Sorted(maps.Keys(places)) {
				v.Places = append(v.Places, places[rank])
			}
			o.Votes = append(o.Votes, v)
		}
		got := kendallW(o)
		if got == nil || math.Abs(*got-tc.W) > reference.Tol*tc.W {
			t.Errorf("case %d: W = %v, want %v", i, got, tc.W)
		}
	}
}
