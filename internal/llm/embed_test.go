package llm_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

// texts are two that lie together, and one that does not.
func texts() []string {
	return []string{
		"The sky is blue because air scatters blue light more than red light.",
		"Blue light is scattered more by air, so the sky is blue.",
		"Write tests first \u2014 \"then\" <code>\\n\n and refactor your modules.",
	}
}

func embedding(model string) council.Call {
	return council.Call{Stage: "embedding", Seat: "embedding", Model: model, Texts: texts()}
}

// rows returns the cosines in the text of a completion.
func rows(t *testing.T, c council.Completion) (rows [][]float64) {
	t.Helper()
	if err := json.Unmarshal([]byte(c.Text), &rows); err != nil {
		t.Fatalf("%v: %q", err, c.Text)
	}
	return rows
}

func TestEmbed(t *testing.T) {
	sim := startSim(t, simllm.Options{APIKey: "k", Models: []simllm.Model{{Name: "m", Price: simllm.Price{Input: 1, Output: 1}}}})
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL(), APIKey: "k"}))
	got, err := c.Complete(t.Context(), embedding("m"))
	if err != nil {
		t.Fatal(err)
	}
	cosines := rows(t, got)
	if len(cosines) != 3 || len(cosines[2]) != 3 || cosines[1][1] != 1 || cosines[0][2] != cosines[2][0] {
		t.Fatalf("the cosines of 3 texts: %v", cosines)
	}
	if near, far := cosines[0][1], cosines[0][2]; near < far+0.3 {
		t.Errorf("the cosine of texts alike is %.2f, and that of others %.2f", near, far)
	}
	u := got.Usage
	if u.InputTokens == nil || u.OutputTokens == nil || u.CostUSD == nil || *u.InputTokens < 1 || *u.OutputTokens != 0 || *u.CostUSD <= 0 {
		t.Errorf("usage %+v", u)
	}
	if got.Attempts != 1 || got.LatencyMS <= 0 {
		t.Errorf("got %d attempts in %v ms", got.Attempts, got.LatencyMS)
	}
	again, err := c.Complete(t.Context(), embedding("m"))
	if diff := cmp.Diff(got.Text, again.Text); err != nil || diff != "" {
		t.Errorf("the same texts again: %v %s", err, diff)
	}
}

// Every fault of a response ends in a failure, as for completions, and each of embeddings too.
func TestEmbeddingFaults(t *testing.T) {
	want := map[simllm.FaultKind]council.FailureCode{
		simllm.FaultStatus: council.FailUnavailable, simllm.FaultHugeError: council.FailUnavailable,
		simllm.FaultHTML: council.FailBadResponse, simllm.FaultHalfJSON: council.FailBadResponse,
		simllm.FaultErrorIn200: council.FailBadResponse, simllm.FaultEmptyObject: council.FailBadResponse,
		simllm.FaultNull: council.FailBadResponse, simllm.FaultNoChoices: council.FailBadResponse,
		simllm.FaultHugeBody: council.FailTooLarge, simllm.FaultReset: council.FailConnection, simllm.FaultResetBody: council.FailReset,
		simllm.FaultEOFBody: council.FailTruncated, simllm.FaultHang: council.FailTimeout, simllm.FaultStall: council.FailTimeout,
		simllm.FaultSlowBody: council.FailTimeout,
	}
	for _, kind := range simllm.EmbeddingKinds() {
		want[kind] = council.FailBadResponse
	}
	for kind, code := range want {
		t.Run(string(kind), func(t *testing.T) {
			sim := startSim(t, simllm.Options{Models: []simllm.Model{{Name: "m", Faults: []simllm.Fault{{Kind: kind, Rate: 1}}}}})
			o := options(llm.Provider{BaseURL: sim.URL()})
			if code == council.FailTimeout {
				o.AttemptTimeout = 300 * time.Millisecond
			}
			got, failure := failed(t, newClient(t, o), embedding("m"))
			if failure.Code != code {
				t.Errorf("got %s: %s", failure.Code, failure.Message)
			}
			if got.Text != "" {
				t.Errorf("it has a text: %q", got.Text)
			}
		})
	}
}

func TestEmbeddingReplies(t *testing.T) {
	for name, tt := range map[string]struct {
		body    string
		message string // of the failure; "" for none
	}{
		"in order":              {`{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3,-4e0]}]}`, ""},
		"in another order":      {`{"data":[{"index":1,"embedding":[3,-4]},{"index":0,"embedding":[1,2]}]}`, ""},
		"without places":        {`{"data":[{"embedding":[1,2]},{"embedding":[3,-4]}]}`, ""},
		"one place twice":       {`{"data":[{"index":1,"embedding":[1,2]},{"index":1,"embedding":[3,-4]}]}`, "one embedding for each of 2"},
		"a place too far":       {`{"data":[{"index":0,"embedding":[1,2]},{"index":2,"embedding":[3,-4]}]}`, "one embedding for each of 2"},
		"a place below 0":       {`{"data":[{"index":-1,"embedding":[1,2]},{"index":0,"embedding":[3,-4]}]}`, "one embedding for each of 2"},
		"one too many":          {`{"data":[{"embedding":[1]},{"embedding":[3]},{"embedding":[3]}]}`, "one embedding for each of 2"},
		"one too few":           {`{"data":[{"embedding":[1]}]}`, "one embedding for each of 2"},
		"none":                  {`{"data":[]}`, "one embedding for each of 2"},
		"unequal lengths":       {`{"data":[{"embedding":[1,2]},{"embedding":[3]}]}`, "2 and 1 numbers"},
		"empty":                 {`{"data":[{"embedding":[]},{"embedding":[]}]}`, "empty"},
		"null":                  {`{"data":[{"embedding":null},{"embedding":[1]}]}`, "empty"},
		"zero":                  {`{"data":[{"embedding":[0,0]},{"embedding":[1,2]}]}`, "zero as a whole"},
		"beyond what has a sum": {`{"data":[{"embedding":[1e200,1]},{"embedding":[1,2]}]}`, "too long"},
		"beyond numbers":        {`{"data":[{"embedding":[1e999,1]},{"embedding":[1,2]}]}`, "not the JSON"},
		"NaN":                   {`{"data":[{"embedding":[NaN,1]},{"embedding":[1,2]}]}`, "not the JSON"},
		"words":                 {`{"data":[{"embedding":["a"]},{"embedding":[1,2]}]}`, "not the JSON"},
		"base64":                {`{"data":[{"embedding":"AAAA"},{"embedding":"AAAA"}]}`, "not the JSON"},
		"an object":             {`{"data":{"embedding":[1]}}`, "not the JSON"},
		"a completion":          {`{"choices":[{"message":{"content":"hi"}}]}`, "holds no answer"},
		"an error":              {`{"error":{"message":"no such thing"}}`, "no such thing"},
		"a list":                {`[]`, "not the JSON"},
		"nothing":               {``, "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if want := `{"model":"m","input":["a \"b\"","c"]}`; r.URL.Path != "/v1/embeddings" || string(body) != want {
					t.Errorf("asked %s with %s", r.URL.Path, body)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, tt.body)
			})
			c := newClient(t, options(llm.Provider{BaseURL: base + "/v1"}))
			got, err := c.Complete(t.Context(), council.Call{Model: "m", Texts: []string{`a "b"`, "c"}})
			failure := council.AsFailure(err)
			switch {
			case tt.message == "":
				if diff := cmp.Diff("[[1,-0.4472],[-0.4472,1]]", got.Text); failure != nil || diff != "" {
					t.Errorf("%v %s", err, diff)
				}
			case failure == nil || failure.Code != council.FailBadResponse || !strings.Contains(failure.Message, tt.message):
				t.Errorf("got %v", err)
			case failure.HTTPStatus == nil || *failure.HTTPStatus != http.StatusOK:
				t.Errorf("the failure does not tell the status: %+v", failure)
			}
		})
	}
}

// What was paid for embeddings that cannot be used is known.
func TestEmbeddingsThatCostAndFail(t *testing.T) {
	sim := startSim(t, simllm.Options{Models: []simllm.Model{{
		Name: "m", Price: simllm.Price{Input: 2}, Faults: []simllm.Fault{{Kind: simllm.EmbeddingZero, Rate: 1}},
	}}})
	got, _ := failed(t, newClient(t, options(llm.Provider{BaseURL: sim.URL()})), embedding("m"))
	if got.Usage.CostUSD == nil || *got.Usage.CostUSD <= 0 || got.Attempts != 1 {
		t.Errorf("%d attempts, usage %+v", got.Attempts, got.Usage)
	}
}
