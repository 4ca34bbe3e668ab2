package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/testkit/daemontest"
)

// natsWith runs one server of NATS in this process, with the options as change made
// them, and returns its URL.
func natsWith(t *testing.T, change func(*server.Options)) string {
	t.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 1 << 30,
	}
	change(o)
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// natsHolding is natsWith for a server that has a stream.
func natsHolding(t *testing.T, stream jetstream.StreamConfig) string {
	t.Helper()
	url := natsWith(t, func(*server.Options) {})
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(t.Context(), stream)
	}
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// keptIn makes a directory in which a daemon has kept a session, with a key or "".
func keptIn(t *testing.T, key string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sessions")
	d := startDaemon(t, daemontest.Members()[:2], "LLM_COUNCIL_DATA_DIR="+filepath.Dir(dir), "LLM_COUNCIL_SESSIONS_KEY="+key)
	d.call(t, "POST", "/v1/council", question, "Idempotency-Key", "k")
	d.terminate(t)
	d.ended(t, 0)
	return dir
}

// metaFiles returns the files with the settings of the streams in a directory.
func metaFiles(t *testing.T, dir string) []string {
	t.Helper()
	found, err := fs.Glob(os.DirFS(dir), "jetstream/$G/streams/*/meta.*")
	if err != nil || len(found) < 4 {
		t.Fatalf("%d files, %v", len(found), err)
	}
	return found
}

// simulated returns the settings of a daemon with simulated members.
func simulated(t *testing.T) []string {
	t.Helper()
	return []string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_MODELS=sim:amber,sim:birch,sim:cedar", "LLM_COUNCIL_API_TOKENS=" + token,
		"LLM_COUNCIL_BIAS_STORE=" + filepath.Join(t.TempDir(), "records.jsonl"),
	}
}

// serve runs a daemon that is to fail, and returns all that it says and its exit code.
func serve(t *testing.T, env ...string) (said string, code int) {
	t.Helper()
	p := start(t, append(simulated(t), env...), "serve")
	out, err := io.ReadAll(io.MultiReader(p.stderr, p.stdout))
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // the exit code says it
	return string(out), p.ProcessState.ExitCode()
}

// What is wrong with the place where sessions are kept is one line at start, which names
// the variable and what to do.
func TestBadStart(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef-geheim"
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "file")
	sessions := filepath.Join(t.TempDir(), "sessions")
	for _, path := range []string{file, sessions} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keyDir, otherDir := keptIn(t, key), keptIn(t, key) // one for each case: a daemon holds its directory
	heldDir := t.TempDir()
	held := startDaemon(t, daemontest.Members()[:2], "LLM_COUNCIL_DATA_DIR="+heldDir)
	t.Cleanup(func() { _ = held.Wait() }) // the end of the test's context kills it
	secured := natsWith(t, func(o *server.Options) { o.Username, o.Password = "user", "geheim" })
	good := natsWith(t, func(*server.Options) {})
	bare := natsWith(t, func(o *server.Options) { o.JetStream = false })
	short := natsWith(t, func(o *server.Options) { o.MaxPayload = 1000 })
	small := natsWith(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
	strict := natsWith(t, func(o *server.Options) {
		only := &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"a"}}}
		o.Users, o.NoAuthUser = []*server.User{{Username: "u", Permissions: only}}, "u"
	})
	subjects := natsHolding(t, jetstream.StreamConfig{Name: "COUNCIL_SESSIONS", Subjects: []string{"a"}})
	inMemory := natsHolding(t, jetstream.StreamConfig{
		Name: "COUNCIL_SESSIONS", Subjects: []string{"council.session.*.*"}, Storage: jetstream.MemoryStorage,
	})
	single := natsHolding(t, jetstream.StreamConfig{Name: "COUNCIL_SESSIONS", Subjects: []string{"council.session.*.*"}})
	for _, tt := range []struct {
		name string
		env  string // without LLM_COUNCIL_
		code int
		want []string
	}{
		{"nobody listens", "NATS_URL=nats://127.0.0.1:1", 1, []string{"NATS_URL", "address is right"}},
		{"not a NATS server", "NATS_URL=nats://" + web.Listener.Addr().String(), 1, []string{"NATS_URL", "address is right"}},
		{"a login in the address", "NATS_URL=nats://user:geheim@127.0.0.1:1", 2, []string{"NATS_URL", "NATS_CREDS"}},
		{"no credentials", "NATS_URL=" + secured, 1, []string{"NATS_CREDS", "credentials are those of a user"}},
		{"wrong credentials", "NATS_URL=" + secured + " NATS_CREDS=geheim", 1, []string{"NATS_CREDS", "files of credentials"}},
		{"no CA", "NATS_URL=" + good + " NATS_CA=/none.pem", 1, []string{"NATS_CA", "/none.pem"}},
		{"no JetStream", "NATS_URL=" + bare, 1, []string{"NATS_URL", "JetStream is enabled"}},
		{"not allowed", "NATS_REPLICAS=1 NATS_URL=" + strict, 1, []string{"NATS_URL", "STREAM.INFO", "allow the user"}},
		{"small messages", "NATS_URL=" + short, 1, []string{"NATS_URL", "max_payload", "540672"}},
		{"no room", "NATS_REPLICAS=1 NATS_URL=" + small, 1, []string{"NATS_URL", "more storage"}},
		{"alone", "NATS_URL=" + good, 1, []string{"NATS_REPLICAS", "fewer replicas"}},
		{"other subjects", "NATS_REPLICAS=1 NATS_URL=" + subjects, 1, []string{"NATS_PREFIX", "subjects", "another prefix"}},
		{"in memory", "NATS_REPLICAS=1 NATS_URL=" + inMemory, 1, []string{"NATS_PREFIX", "storage", "another prefix"}},
		{"other replicas", "NATS_URL=" + single, 1, []string{"NATS_REPLICAS", "replicas: 1 instead of 3"}},
		{"a cluster and a key", "NATS_URL=" + good + " SESSIONS_KEY=" + key, 2, []string{"SESSIONS_KEY", "unset one"}},
		{"held", "DATA_DIR=" + heldDir, 1, []string{"DATA_DIR", "is held by process"}},
		{"a file", "DATA_DIR=" + file, 1, []string{"DATA_DIR", "not a directory"}},
		{"sessions in a file", "DATA_DIR=" + filepath.Dir(sessions), 1, []string{"DATA_DIR", "name a directory"}},
		{"a wrong key", "DATA_DIR=" + filepath.Dir(keyDir) + " SESSIONS_KEY=another-" + key, 1, []string{"SESSIONS_KEY", "it was written with"}},
		{"no key", "DATA_DIR=" + filepath.Dir(otherDir), 1, []string{"SESSIONS_KEY", "it was written with"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var env []string
			for assignment := range strings.FieldsSeq(tt.env) {
				env = append(env, "LLM_COUNCIL_"+assignment)
			}
			judge(t, env, tt.code, tt.want...)
		})
	}
}

// judge runs a daemon that is to fail with one line.
func judge(t *testing.T, env []string, code int, want ...string) {
	t.Helper()
	begun := time.Now()
	said, got := serve(t, env...)
	took := time.Since(begun)
	t.Logf("after %s: %s", took.Round(10*time.Millisecond), said)
	if got != code || took > 40*time.Second {
		t.Errorf("exit code %d after %s, want %d", got, took, code)
	}
	if strings.Count(said, "\n") != 1 {
		t.Errorf("%d lines, want 1", strings.Count(said, "\n"))
	}
	for _, text := range want {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not said", text)
		}
	}
	if strings.Contains(said, "geheim") || strings.Contains(said, token) {
		t.Error("a secret is told")
	}
}

// A key that is given later encrypts what was kept without one.
func TestKeyGivenLater(t *testing.T) {
	t.Parallel()
	dir := keptIn(t, "")
	readable := func() (in []string) {
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if bytes.Contains(data, []byte(marker)) {
				in = append(in, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	if len(readable()) == 0 {
		t.Fatal("the question is not kept")
	}
	d := startDaemon(t, daemontest.Members()[:2], "LLM_COUNCIL_DATA_DIR="+filepath.Dir(dir), "LLM_COUNCIL_SESSIONS_KEY=0123456789abcdef")
	if _, body := d.call(t, "POST", "/v1/council", question, "Idempotency-Key", "k"); !strings.Contains(body, marker) {
		t.Errorf("got %s", body)
	}
	for name, m := range d.sim.Stats().Models {
		if m.Requests != 0 {
			t.Errorf("%d requests to %s for a session that was kept", m.Requests, name)
		}
	}
	d.terminate(t)
	d.ended(t, 0)
	if in := readable(); len(in) > 0 {
		t.Errorf("the question can be read in %v", in)
	}
}

// A daemon starts with damaged settings of its streams, and says so. With a key it cannot
// tell damage from a wrong key, and does not start.
func TestDamagedStart(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "0123456789abcdef-geheim"} {
		dir := keptIn(t, key)
		for _, name := range metaFiles(t, dir) {
			for how, content := range map[string]string{"cut": "", "garbage": "\x00garbage"} {
				t.Run(fmt.Sprintf("%s %s, key %t", name, how, key != ""), func(t *testing.T) {
					t.Parallel()
					damaged := filepath.Join(t.TempDir(), "sessions")
					if err := os.CopyFS(damaged, os.DirFS(dir)); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(damaged, name), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
					env := []string{"LLM_COUNCIL_DATA_DIR=" + filepath.Dir(damaged), "LLM_COUNCIL_SESSIONS_KEY=" + key}
					if key != "" {
						judge(t, env, 1, "SESSIONS_KEY", "move the directory away")
						return
					}
					p := start(t, append(simulated(t), env...), "serve")
					line(t, p.stderr, "made anew")
					line(t, p.stderr, "listening")
					if err := p.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					if err := p.Wait(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// What the engine says after a kill, and what nobody need do something about, is no
// warning.
func TestQuietAfterKill(t *testing.T) {
	t.Parallel()
	dir := "LLM_COUNCIL_DATA_DIR=" + t.TempDir()
	d := startDaemon(t, daemontest.Members(), dir)
	d.call(t, "POST", "/v1/council", question, "Idempotency-Key", "k")
	if err := d.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.logged
	_ = d.Wait() // it was killed
	p := start(t, append(simulated(t), dir, "LLM_COUNCIL_LOG_LEVEL=debug"), "serve")
	told := false
	for line := ""; !strings.Contains(line, "listening"); {
		var err error
		if line, err = p.stderr.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		told = told || strings.Contains(line, "outdated")
		if strings.Contains(line, "WARN") || strings.Contains(line, "ERROR") {
			t.Errorf("said %s", line)
		}
	}
	if !told {
		t.Error("the engine says nothing of the kill: the test shows nothing")
	}
	_ = p.Process.Kill()
	_ = p.Wait()
}
