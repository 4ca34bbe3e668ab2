package render

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/worth"
)

// seats returns one report on seats of each kind that a reader can meet, by name.
func seats() map[string]Seats {
	made := func(n, members int, accuracy, common float64) Seats {
		rng := rand.New(rand.NewPCG(7, 3))
		rows := make([]worth.SeatQuestion, n)
		for i := range rows {
			shared := rng.Float64()
			q := worth.SeatQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Wrong: make([]bool, members)}
			right := 0
			for j := range members {
				u := rng.Float64()
				if rng.Float64() < common {
					u = shared
				}
				if q.Wrong[j] = u > accuracy+0.05*float64(j%4); !q.Wrong[j] {
					right++
				}
			}
			q.Alike, q.AlikeRight = max(right, members-right), 2*right > members // wrong seats give the same answer
			most := func(right, of int) *float64 { return new(float64(1+cmp.Compare(2*right, of)) / 2) }
			q.Vote, q.Ranked = most(right, members), most(right+1, members)
			for j := range members {
				others := right
				if !q.Wrong[j] {
					others--
				}
				q.VoteWithout, q.RankedWithout = append(q.VoteWithout, most(others, members-1)), append(q.RankedWithout, most(others+1, members-1))
			}
			rows[i] = q
		}
		s := Seats{SeatsReport: worth.Seats(rows, members), Source: "results.jsonl"}
		for j := range members {
			s.Members = append(s.Members, "lab/model-"+strconv.Itoa(j+1))
		}
		return s
	}
	all := map[string]Seats{
		"seats": made(200, 4, 0.6, 0.6), "few": made(20, 4, 0.6, 0.6), "many": made(120, 11, 0.6, 0.3), "perfect": made(40, 3, 1, 0),
		"nobody": {}, "no_questions": {SeatsReport: worth.Seats(nil, 3)},
	}
	opposed := make([]worth.SeatQuestion, 40)
	for i := range opposed {
		opposed[i] = worth.SeatQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Wrong: []bool{i%2 == 0, i%2 == 1}}
	}
	all["opposed"] = Seats{worth.Seats(opposed, 2), []string{"ann", "bob"}, "results.jsonl"}
	one := make([]worth.SeatQuestion, 40)
	for i := range one {
		one[i] = worth.SeatQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Wrong: []bool{i%2 == 0, i%3 == 0, false}}
	}
	all["one_perfect"] = Seats{worth.Seats(one, 3), []string{"ann", "bob", "cem"}, "results.jsonl"}
	return all
}

func TestSeats(t *testing.T) {
	for name, s := range seats() {
		t.Run(name, func(t *testing.T) {
			text := SeatsText(s)
			narrow(t, text)
			golden(t, "seats_"+name+".txt", text)
			if name == "seats" {
				golden(t, "seats_"+name+".csv", shortened(t, SeatsCSV(s)))
				golden(t, "seats_"+name+".html", SeatsHTML(s))
			}
			wholePage(t, SeatsHTML(s))
			wholeTable(t, SeatsCSV(s))
		})
	}
}

// TestSeatsInWords holds what is said of how many independent seats there are, and of what is not defined.
func TestSeatsInWords(t *testing.T) {
	all := seats()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		want := map[string][]string{
			"seats": {
				"4 seats count like 2.2 independent ones (95 % interval 1.", "errors in common cost",
				"No vote and no ranking", "no ceiling for a synthesis",
			},
			"few":          {"There is no interval: it needs 15 errors"},
			"many":         {"11 seats count like", "With seats from 9 on"},
			"perfect":      {"The number of independent seats that 3 seats count like is not defined: fewer than two of them"},
			"nobody":       {"not defined: there are no questions"},
			"no_questions": {"not defined: there are no questions", "Not defined: this score was not counted at every question."},
			"opposed":      {"not defined: their errors exclude each other"},
			"one_perfect":  {"2 seats count like", "Left out: 1 seat that made no error or only errors."},
		}[name]
		if len(want) == 0 {
			t.Errorf("%s: nothing is wanted", name)
		}
		text := strings.Join(strings.Fields(string(SeatsText(all[name]))), " ")
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the text lacks %q: %s", name, part, text)
			}
		}
	}
}

func TestShade(t *testing.T) {
	for phi, want := range map[float64]string{0: "", 0.09: "", 0.11: "more1", 0.4: "more2", 1: "more4", -0.3: "less2", -1: "less4"} {
		if got := shade(&phi); got != want {
			t.Errorf("%v: %q, want %q", phi, got, want)
		}
	}
	if got := shade(nil); got != "" {
		t.Errorf("undefined: %q", got)
	}
}

func TestAmounts(t *testing.T) {
	for amount, want := range map[float64]string{
		0: "0.00", 12.345: "12.35", 1: "1.00", 0.5: "0.50",
		0.012345: "0.012", 1e-5: "0.00001", -0.25: "-0.25",
	} {
		if got := usd(amount); got != want {
			t.Errorf("%v: %s, want %s", amount, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := signed(-0.0001); got != "+0.0" {
		t.Errorf("a difference of nothing is %s", got)
	}
}
