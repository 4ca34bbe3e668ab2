package daemon_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// questionKeys returns the keys of the sessions of a daemon, in the order in which they began, "" for none.
func questionKeys(t *testing.T, d *daemontest.Daemon) (keys []string) {
	t.Helper()
	records := slices.SortedStableFunc(slices.Values(d.Records(t)), func(a, b council.BiasMetricRecord) int {
		return a.Timestamp.Compare(b.Timestamp)
	})
	for i, r := range records {
		key := ""
		if r.QuestionKey != nil {
			key = *r.QuestionKey
		}
		if i == 0 || r.SessionID != records[i-1].SessionID {
			keys = append(keys, key)
		} else if keys[len(keys)-1] != key {
			t.Errorf("session %s has two keys", r.SessionID)
		}
	}
	return keys
}

// Records tell at every level of consent which sessions asked the same, also after a restart. Without the file of the secret
// another one is made, with one that cannot be used there are no keys, and both are said. No session is lost by it.
func TestQuestionKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	env := map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "BIAS_STORE": path}
	ask := func(d *daemontest.Daemon, bodies ...string) []string {
		t.Helper()
		for _, body := range bodies {
			if s := d.Ask(t, body); !s.Persisted {
				t.Errorf("%s: not persisted: %+v", body, s.Metadata.Warnings)
			}
		}
		keys := questionKeys(t, d)
		d.End(t)
		return keys[len(keys)-len(bodies):]
	}
	const one, again, other = `{"query":"What?"}`, `{"query":"What?","seed":7,"category":"math"}`, `{"query":"what?"}`
	const talk = `{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi"},{"role":"user","content":"What?"}]}`
	first := ask(daemontest.Start(t, env), one, other, again, talk, talk)
	if first[0] == "" || first[0] != first[2] || first[0] == first[1] || first[3] != first[4] || first[3] == first[0] || first[3] == first[1] {
		t.Errorf("keys %v", first)
	}
	if later := ask(daemontest.Start(t, env), one); later[0] != first[0] {
		t.Errorf("the key is %s after a restart, and was %s", later[0], first[0])
	}
	file := store.QuestionFile(path)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t, env)
	if anew := ask(d, one, again); anew[0] != anew[1] || anew[0] == "" || anew[0] == first[0] || !strings.Contains(d.Log.String(), "another one was made") {
		t.Errorf("keys %v with another secret; %s", anew, d.Log)
	}
	r, err := d.Report(t.Context(), bias.Query{})
	if err != nil || r.Repeats.Questions != 4 || r.Repeats.SecretMade == nil || !strings.Contains(r.Repeats.Note, "was replaced on ") {
		t.Errorf("%v: %+v", err, r.Repeats)
	}
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = daemontest.Start(t, env)
	if none := ask(d, one); none[0] != "" || !strings.Contains(d.Log.String(), "remove it to have another secret made") {
		t.Errorf("the key is %s without a secret; %s", none[0], d.Log)
	}
	if left, err := os.ReadFile(file); err != nil || string(left) != "damaged" {
		t.Errorf("the damaged file is now %s: %v", left, err)
	}
}

// Without records there is no secret.
func TestNoQuestionSecretWithoutRecords(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "BIAS_CONSENT": "0"})
	d.Ask(t, anyQuestion)
	d.End(t)
	if _, err := os.Stat(store.QuestionFile(d.Config.BiasStore)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a secret was made: %v", err)
	}
}

// Nodes that start at the same moment have one secret. A node without its file gets it back, also if it is not the first to start
// again, and a node that joins takes the cluster's.
func TestNodesShareTheQuestionSecret(t *testing.T) {
	testkit.Slow(t)
	cluster, dir := journaltest.Start(t), t.TempDir()
	daemontest.Setenv(t, map[string]string{
		"NATS_URL": cluster.URL, "DRAIN_TIMEOUT": "600ms", "BASE_URL": daemontest.Quick(t), "MODELS": "a,b",
	})
	settings := daemontest.Options(t) // read once: reading them changes the environment for a moment
	settings.Config.Lease = testLease
	start := func(name string) *daemontest.Daemon {
		o := settings
		o.Config.BiasStore = filepath.Join(dir, name, "records.jsonl")
		return daemontest.StartWith(t, o)
	}
	secret := func(name string) string {
		s, err := store.ReadQuestionSecret(filepath.Join(dir, name, "records.jsonl"))
		if err != nil {
			t.Error(err)
		}
		return s.Secret
	}
	all := make([]*daemontest.Daemon, 4)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() { all[i] = start(string(rune('a' + i))) })
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	shared := secret("a")
	for _, name := range []string{"b", "c", "d"} {
		if s := secret(name); s != shared {
			t.Errorf("node %s has the secret %s, and node a %s", name, s, shared)
		}
	}
	all[0].Ask(t, anyQuestion)
	all[1].Ask(t, anyQuestion)
	daemontest.Until(t, func() bool {
		sessions := map[string]bool{}
		for r, err := range store.ReadFile(t.Context(), all[0].Config.BiasStore) {
			if err == nil {
				sessions[r.SessionID] = true
			}
		}
		return len(sessions) == 2
	})
	if keys := questionKeys(t, all[0]); keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("one question has the keys %v on two nodes", keys)
	}

	all[0].End(t)
	if err := os.Remove(store.QuestionFile(all[0].Config.BiasStore)); err != nil {
		t.Fatal(err)
	}
	all[0] = start("a")
	if s := secret("a"); s != shared {
		t.Errorf("a node that lost its file has %s, the others have %s", s, shared)
	}
	if _, err := store.OpenQuestionSecret(t.Context(), filepath.Join(dir, "e", "records.jsonl"), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	late := start("e")
	if s := secret("e"); s != shared || !strings.Contains(late.Log.String(), "the cluster's secret of question keys differs") {
		t.Errorf("a node that joined has %s, the others have %s; log %s", s, shared, late.Log)
	}
}
