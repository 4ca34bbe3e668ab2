package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// corpusReply is a file of the corpus of reviewer replies; the README there
// describes the form.
type corpusReply struct {
	name, reply string
	labels      int
	want        struct {
		Invalid   string          `json:"invalid"`
		Abstained bool            `json:"abstained"`
		Ranking   []council.Label `json:"ranking"`
	}
}

// readCorpus returns the replies by the number of answers on their slates.
func readCorpus(t *testing.T) map[int][]corpusReply {
	t.Helper()
	files, err := filepath.Glob("../stage2/testdata/corpus/*.case")
	if err != nil || len(files) < 120 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	replies := map[int][]corpusReply{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := corpusReply{name: filepath.Base(file)}
		_, rest, _ := strings.Cut(string(text), "\n-- labels --\n")
		labels, rest, _ := strings.Cut(rest, "\n-- reply")
		kind, rest, _ := strings.Cut(rest, " --\n")
		reply, want, _ := strings.Cut(rest, "\n-- want --\n")
		if c.reply = reply; kind == " as JSON" {
			if err := json.Unmarshal([]byte(reply), &c.reply); err != nil {
				t.Fatal(err)
			}
		}
		if c.labels, err = strconv.Atoi(labels); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(want), &c.want); err != nil {
			t.Fatal(err)
		}
		replies[c.labels] = append(replies[c.labels], c)
	}
	return replies
}

// Whatever a reviewer replies, the session has an answer, and the review is a ballot, an
// abstention, or invalid with the reason.
func TestFaultF14(t *testing.T) {
	testkit.Slow(t)
	outcomes := map[council.Outcome]int{}
	for n, replies := range readCorpus(t) {
		if n == 0 {
			continue // no session has a slate without answers
		}
		t.Run(fmt.Sprintf("%d answers", n), func(t *testing.T) {
			var reply atomic.Pointer[string]
			reviewer := simllm.Model{Name: "reviewer", Reply: func(task simllm.Task) (string, bool) {
				if task.Kind == simllm.Review {
					return *reply.Load(), true
				}
				return "", false
			}}
			models := []simllm.Model{reviewer}
			var members []string
			for i := range n {
				models = append(models, simllm.Model{Name: fmt.Sprintf("m%d", i)})
				members = append(members, models[i+1].Name)
			}
			if n < 2 { // nobody reviews itself: of two members, each sees one answer
				members = append([]string{"reviewer"}, members...)
			}
			env := daemontest.Roster(t, "{members: ["+strings.Join(members, ", ")+"], reviewers: [reviewer]}", slices.Compact(append(
				slices.Sorted(slices.Values(members)), "reviewer"))...)
			env["MAX_MODELS"] = "64"
			f := trialOf(t, tapModels(t, models...), "", env)
			for _, c := range replies {
				reply.Store(&c.reply)
				s := f.session(t, `,"chairman":"m0"`)
				v, want := s.Stage2[0], council.OutcomeOK
				switch {
				case c.want.Invalid != "":
					want = council.OutcomeInvalid
				case c.want.Abstained:
					want = council.OutcomeAbstained
				}
				outcomes[v.Status]++
				if v.Status != want || v.ParsedRanking == nil || len(v.LabelToModel) != n {
					t.Errorf("%s: %s, want %s: %+v", c.name, v.Status, want, v)
					continue
				}
				if want != council.OutcomeOK && (len(s.Degradation) != 1 || s.Degradation[0].Message == "") {
					t.Errorf("%s: %s without a reason", c.name, v.Status)
				}
				if want == council.OutcomeOK && fmt.Sprint(v.ParsedRanking.Ranking) != fmt.Sprint(c.want.Ranking) {
					t.Errorf("%s: read as %v, want %v", c.name, v.ParsedRanking.Ranking, c.want.Ranking)
				}
			}
		})
	}
	daemontest.Fault(t, "F14", "200; each ballot ok, abstained or invalid, with its reason", "replies %v", outcomes)
}
