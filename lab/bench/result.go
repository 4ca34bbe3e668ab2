package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// series has the values of a figure, one for each round.
type series []float64

// walsh returns the averages of all pairs of values, in ascending order. Each value also makes a pair with itself.
func (s series) walsh() (averages series) {
	for i, x := range s {
		for _, y := range s[i:] {
			averages = append(averages, (x+y)/2)
		}
	}
	slices.Sort(averages)
	return averages
}

// pseudomedian returns the median of the averages of all pairs (Hodges and Lehmann 1963). Like the median of the
// values, it changes little if a round went wrong. If the noise is normal, the error of the pseudomedian is a fifth
// smaller than the error of the median.
func (s series) pseudomedian() float64 {
	averages := s.walsh()
	n := len(averages)
	return (averages[(n-1)/2] + averages[n/2]) / 2
}

// interval returns the narrowest interval between two averages of pairs that holds the true pseudomedian with a
// probability of at least 95 %, if the noise is symmetric. The number of averages below the true pseudomedian is
// distributed as Wilcoxon's sum of signed ranks. For fewer than six values, no interval reaches 95 %, and interval
// returns their range.
func (s series) interval() (low, high float64) {
	averages := s.walsh()
	ways := make([]float64, len(averages)+1) // by sum: the number of subsets of the ranks 1 to n that have this sum
	ways[0] = 1
	for rank := range s {
		for sum := len(averages); sum > rank; sum-- {
			ways[sum] += ways[sum-rank-1]
		}
	}
	k := 0
	for below := ways[0]; 2*below <= 0.05*math.Exp2(float64(len(s))); below += ways[k] {
		k++
	}
	k = max(1, k)
	return averages[k-1], averages[len(averages)-k]
}

// String returns the pseudomedian, and its interval.
func (s series) String() string {
	if len(s) == 1 {
		return short(s[0])
	}
	low, high := s.interval()
	return fmt.Sprintf("%s (%s to %s)", short(s.pseudomedian()), short(low), short(high))
}

// over is the ratio of s to base in each round.
func (s series) over(base series) (ratios series) {
	for i := range min(len(s), len(base)) {
		ratios = append(ratios, s[i]/base[i])
	}
	return ratios
}

// less is the difference between s and part in each round.
func (s series) less(part series) (rest series) {
	for i := range min(len(s), len(part)) {
		rest = append(rest, s[i]-part[i])
	}
	return rest
}

func short(x float64) string {
	if x >= 1000 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// figure is a line of the table. Name and What say which it is.
type figure struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Values  series `json:"values,omitempty"`
	Problem string `json:"problem,omitempty"` // why there are no values
	Beside  string `json:"beside,omitempty"`  // other values of the same run, to compare it with
	Reach   string `json:"reach,omitempty"`
	Then    string `json:"then,omitempty"`
	// Local says that the figure depends on the machine. It is a time, or a ratio of different kinds of work, such as
	// the time of a program compared with the time of a system call.
	Local bool `json:"local,omitempty"`
}

// result is the content of a result file: what a run measured.
type result struct {
	Machine string   `json:"machine"`
	Figures []figure `json:"figures"`
}

func (r *result) add(f figure) { r.Figures = append(r.Figures, f) }

func (r *result) print(w io.Writer) {
	slices.SortStableFunc(r.Figures, func(x, y figure) int {
		nx, _ := strconv.Atoi(x.Name[1:])
		ny, _ := strconv.Atoi(y.Name[1:])
		return cmp.Compare(nx, ny)
	})
	fmt.Fprintln(w, "| # | figure | estimate (its interval) | beside it, in the same run | reach | then |\n|---|---|---|---|---|---|")
	for _, f := range r.Figures {
		measured := "**invalid**: " + f.Problem
		if len(f.Values) > 0 {
			measured = f.Values.String()
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", f.Name, f.What, measured, f.Beside, f.Reach, f.Then)
	}
}

// against is the command that prints the figures of two results beside each other.
func against(_ context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("name two files that compare wrote with -out, the older one first")
	}
	var results [2]result
	for i, name := range args {
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &results[i])
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	beside(os.Stdout, results[0], results[1])
	return nil
}

// beside is called with two results. It prints their figures, their quotients, and whether ratios agree within 10 %.
func beside(w io.Writer, older, newer result) {
	fmt.Fprintf(w, "Older: %s\n\nNewer: %s\n\n| # | figure | older | newer | newer / older | within 10 %% |\n|---|---|---|---|---|---|\n",
		older.Machine, newer.Machine)
	agree, ratios := 0, 0
	for _, f := range newer.Figures {
		i := slices.IndexFunc(older.Figures, func(o figure) bool { return o.Name == f.Name && o.What == f.What })
		if i < 0 || len(f.Values) == 0 || len(older.Figures[i].Values) == 0 {
			fmt.Fprintf(w, "| %s | %s | | | only one run has it | |\n", f.Name, f.What)
			continue
		}
		before := older.Figures[i].Values
		quotient := f.Values.pseudomedian() / before.pseudomedian()
		if f.Values.pseudomedian() == before.pseudomedian() { // both may be zero
			quotient = 1
		}
		verdict := "depends on the machine"
		if !f.Local {
			ratios++
			verdict = "**no**"
			if math.Abs(math.Log(quotient)) <= math.Log(1.1) {
				verdict = "yes"
				agree++
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", f.Name, f.What, before, f.Values, short(quotient), verdict)
	}
	fmt.Fprintf(w, "\n%d of %d ratios agree within 10 %%.\n", agree, ratios)
}

// oneLine returns an error in a form that fits into the cell of a table or into a comment. It keeps the end of a long
// error, because programs print the reason last.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.Join(strings.Fields(err.Error()), " "), "|", "/")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:100]+" ... "+text[len(text)-200:], "")
	}
	return text
}
