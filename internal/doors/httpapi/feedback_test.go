package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
)

// fakeLabels remembers what it is told to keep.
type fakeLabels struct {
	key string
	err error

	mu   sync.Mutex // guards kept
	kept []council.LabelRecord
}

func (f *fakeLabels) Key() string { return f.key }

func (f *fakeLabels) Keep(_ context.Context, record council.LabelRecord) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.kept = append(f.kept, record)
	}
	return f.err
}

// last returns the record that was kept last.
func (f *fakeLabels) last(t *testing.T) council.LabelRecord {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.kept) == 0 {
		t.Fatal("nothing was kept")
	}
	return f.kept[len(f.kept)-1]
}

func withLabels(labels httpapi.Labels, secrets ...string) func(*httpapi.Options, *pipeline.Options) {
	return func(o *httpapi.Options, p *pipeline.Options) {
		o.Labels, o.Tokens, p.LabelRate = labels, doortest.Tokens(secrets...), 1
	}
}

func (s *server) feedback(t *testing.T, id, body string, headers ...string) (int, []byte) {
	t.Helper()
	resp, data := s.Call(t, http.MethodPost, "/v1/council/"+id+"/feedback", body, headers...)
	return resp.StatusCode, data
}

func TestFeedback(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	labels := &fakeLabels{key: "s3cret"}
	s := start(t, nil, withLabels(labels))
	id := s.background(t, `"query":"Why is the sky blue?","category":"knowledge"`)
	s.Watch(t, id)
	session := s.session(t, id)
	if !session.Metadata.LabelWanted {
		t.Error("the session does not say that it was drawn")
	}
	status, data := s.feedback(t, id, `{"preferred":"birch","over":["synthesis","birch","amber","amber"],"rating":4,"by":"ada"}`)
	var kept council.Kept
	if err := json.Unmarshal(data, &kept); err != nil || status != http.StatusCreated {
		t.Fatalf("%d, %s", status, data)
	}
	// printf ada | openssl dgst -sha256 -hmac s3cret
	want := council.Kept{
		SessionID: id, Preferred: new("birch"), Over: []string{"amber", "synthesis"}, Rating: new(4), By: "6717f0477004f82d",
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("-want +kept:\n%s", diff)
	}
	record := labels.last(t)
	if diff := cmp.Diff(want, record.Kept); diff != "" {
		t.Errorf("the record: -want +got:\n%s", diff)
	}
	meta := session.Metadata
	if !record.Wanted || record.CouncilConfig != meta.Versions.CouncilConfig || !record.Timestamp.Equal(session.Created) ||
		record.Labelled.Before(session.Created) || *record.QueryMetadata.Category != "knowledge" || record.QueryMetadata.Language != nil {
		t.Errorf("the record does not say which session it is of: %+v", record)
	}
	if record.Chairman == nil || *record.Chairman != session.Stage3.Model || record.TopModel == nil ||
		*record.TopModel != meta.AggregateRankings[0].Model {
		t.Errorf("the synthesis is by %v, and the first is %v", record.Chairman, record.TopModel)
	}
	borda := map[string]float64{}
	for _, standing := range meta.AggregateRankings {
		if standing.Model != "cedar" { // which was not seen
			borda[standing.Model] = *standing.BordaScore
		}
	}
	if diff := cmp.Diff(borda, record.Borda); diff != "" {
		t.Errorf("-want +Borda scores:\n%s", diff)
	}
	// Own answers are hidden, so that cedar alone ranked both.
	review := session.Stage2[slices.IndexFunc(session.Stage2, func(r council.Review) bool { return r.Model == "cedar" })]
	places := map[string]int{}
	for place, l := range review.ParsedRanking.Ranking {
		places[review.LabelToModel[l].Model] = place
	}
	if diff := cmp.Diff([]council.LabelBallot{{ID: "cedar", Places: places}}, record.Ballots); diff != "" {
		t.Errorf("-want +ballots:\n%s", diff)
	}
}

// What was said of a session by persons without a name is one token's word.
func TestFeedbackOfTokens(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	const other = "another-token-of-sixteen"
	labels := &fakeLabels{key: "s3cret"}
	s := start(t, nil, withLabels(labels, secret, other))
	mine, theirs := []string{"Authorization", "Bearer " + secret}, []string{"Authorization", "Bearer " + other}
	id := s.background(t, `"query":"x"`, mine...)
	s.Watch(t, id, mine...)
	var by []string
	for _, body := range []string{`{"rating":1}`, `{"rating":2}`, `{"rating":3,"by":"ada"}`} {
		if status, data := s.feedback(t, id, body, mine...); status != http.StatusCreated {
			t.Fatalf("%d, %s", status, data)
		}
		by = append(by, labels.last(t).By)
	}
	if by[0] != by[1] || by[1] == by[2] {
		t.Errorf("the same token, and then a name: %v", by)
	}
	if status, _ := s.feedback(t, id, `{"rating":1}`, theirs...); status != http.StatusNotFound {
		t.Errorf("somebody else's session: %d", status)
	}
}

func TestFeedbackThatIsRefused(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	labels := &fakeLabels{key: "s3cret"}
	s := start(t, []simllm.Model{
		{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400, Rate: 1}}},
		{Name: "hang", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}},
	}, withLabels(labels))
	ended := func(models string) string {
		id := s.background(t, `"query":"x","models":`+models)
		s.Watch(t, id)
		return id
	}
	whole, failed := ended(`["amber","birch","down"]`), ended(`["down","down"]`)
	for _, c := range []struct{ id, body, want string }{
		{whole, `{}`, "preferred"},
		{whole, `{"over":["amber"]}`, "preferred"},
		{whole, `{"rating":0}`, "rating"},
		{whole, `{"rating":6}`, "rating"},
		{whole, `{"rating":"good"}`, "rating"},
		{whole, `{"preferred":"amber"}`, "over"},
		{whole, `{"preferred":"amber","over":["amber"]}`, "over"},
		{whole, `{"preferred":"tie","over":["amber"]}`, "over"},
		{whole, `{"preferred":"amber","over":"birch"}`, "over"},
		{whole, `{"preferred":"cedar","over":["amber"]}`, "preferred"},
		{whole, `{"preferred":"down","over":["amber"]}`, "preferred"},
		{whole, `{"preferred":"amber","over":["birch","tie","down"]}`, "over[1] over[2]"},
		{whole, `{"rating":3,"text":"thanks"}`, "text"},
		{failed, `{"rating":3}`, "rating"},
		{failed, `{"preferred":"synthesis","over":["down"]}`, "over[0] preferred"},
	} {
		status, data := s.feedback(t, c.id, c.body)
		var p council.Problem
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, f := range p.Errors {
			fields = append(fields, f.Field)
		}
		if status != http.StatusUnprocessableEntity || p.Code != council.CodeInvalid || strings.Join(fields, " ") != c.want {
			t.Errorf("%s: %d, %v, want problems with %s: %s", c.body, status, fields, c.want, data)
		}
	}
	if status, data := s.feedback(t, whole, `{"preferred":"tie","over":["amber","synthesis"]}`); status != http.StatusCreated {
		t.Errorf("a tie: %d, %s", status, data)
	}
	running := s.background(t, `"query":"x","models":["hang","hang"]`)
	if status, data := s.feedback(t, running, `{"rating":3}`); status != http.StatusConflict {
		t.Errorf("a session that runs: %d, %s", status, data)
	}
	if status, _ := s.feedback(t, "nothing", `{"rating":3}`); status != http.StatusNotFound {
		t.Errorf("no session: %d", status)
	}
	labels.key = ""
	if status, data := s.feedback(t, whole, `{"rating":3}`); status != http.StatusUnprocessableEntity ||
		!strings.Contains(string(data), "LLM_COUNCIL_HASH_SECRET") {
		t.Errorf("without a secret: %d, %s", status, data)
	}
	if n := len(labels.kept); n != 1 {
		t.Errorf("%d of one were kept", n)
	}
}

func TestFeedbackThatNobodyKeeps(t *testing.T) {
	s := start(t, nil)
	if status, data := s.feedback(t, "x", `{"rating":3}`); status != http.StatusNotFound ||
		!strings.Contains(string(data), "LLM_COUNCIL_DATA_DIR") {
		t.Errorf("%d, %s", status, data)
	}
}
