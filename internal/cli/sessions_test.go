package cli

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// A session is listed, shown and deleted on the command line.
func TestSessions(t *testing.T) {
	const token = "adas-only-token-of-all"
	models := daemontest.Members()
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
	}
	d := startDaemon(t, map[string]string{
		"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": "a,b,c", "API_TOKENS": "ada:" + token,
	})
	d.Token = token
	if code, stdout, stderr := command(t, "sessions", "list", "--server", d.URL()); code != exitOK || strings.Count(stdout, "\n") != 1 {
		t.Errorf("none: exit %d: %s%s", code, stdout, stderr)
	}
	first, second := d.Ask(t, `{"query":"Which\nway?"}`), d.Ask(t, `{"query":"Why?"}`)

	code, stdout, stderr := command(t, "sessions", "list", "--server", d.URL()+"/")
	if code != exitOK || stderr != "" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	rows := strings.Split(stdout, "\n")
	for i, s := range []council.Session{second, first} {
		fields := strings.Fields(strings.TrimPrefix(rows[1+i], s.Query))
		if !strings.HasPrefix(rows[1+i], s.Query+"  ") || len(fields) != 4 || !strings.HasPrefix(s.ID, fields[0]) ||
			fields[1] != "complete" || !strings.HasPrefix(fields[3], "$0.0") {
			t.Errorf("row %d is %q, want the question %q and the session %s", i, rows[1+i], s.Query, s.ID)
			continue
		}
		code, stdout, stderr := command(t, "sessions", "show", fields[0], "--server", d.URL())
		if code != exitOK || !strings.Contains(stdout, "session "+s.ID+": complete\n") || !strings.Contains(stdout, "RANK  MODEL  BORDA") {
			t.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
		code, stdout, stderr = command(t, "ask", "--follow", fields[0], "--server", d.URL())
		if code != exitOK || !strings.Contains(stdout, "session "+s.ID+": complete\n") {
			t.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
	}

	for _, verb := range []string{"show", "delete"} {
		code, stdout, stderr := command(t, "sessions", verb, first.ID[:1], "--server", d.URL())
		if code != exitError || stdout != "" || !strings.Contains(stderr, "2 sessions begin with \""+first.ID[:1]) {
			t.Errorf("%s: exit %d: %s%s", verb, code, stdout, stderr)
		}
	}

	code, stdout, stderr = command(t, "sessions", "list", "--json", "--server", d.URL())
	var list []council.Summary
	if err := json.Unmarshal([]byte(stdout), &list); code != exitOK || err != nil {
		t.Errorf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	if len(list) != 2 || list[1].Query != "Which way?" || list[1].CostUSD == nil {
		t.Errorf("the list is %+v", list)
	}

	code, stdout, stderr = command(t, "sessions", "show", first.ID, "--server", d.URL())
	if code != exitOK || !strings.HasPrefix(stdout, first.Answer+"\n\n") || !strings.Contains(stdout, "session "+first.ID+": complete\n") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	_, stdout, _ = command(t, "sessions", "show", "--json", first.ID, "--server", d.URL())
	var shown council.Session
	if err := json.Unmarshal([]byte(stdout), &shown); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if diff := cmp.Diff(first, shown); diff != "" {
		t.Error(diff)
	}

	if code, stdout, _ := command(t, "sessions", "list", "--server", d.URL(), "--limit", "1", "--status", "complete"); code != exitOK ||
		strings.Contains(stdout, "Which way?") || !strings.Contains(stdout, "Why?") || !strings.Contains(stdout, "There are older ones.") {
		t.Errorf("the newest: exit %d: %s", code, stdout)
	}
	if code, stdout, _ := command(t, "sessions", "list", "--server", d.URL(), "--search", "no such text"); code != exitOK ||
		strings.Contains(stdout, "Which way?") || strings.Contains(stdout, "Why?") {
		t.Errorf("what nobody asked: exit %d: %s", code, stdout)
	}
	d.Call(t, "PATCH", "/v1/council/"+first.ID, `{"title":"The two ways"}`)
	words := strings.Fields(first.Answer)
	for _, search := range []string{"TWO ways", "which way", strings.Join(words[len(words)-8:], " ")} {
		code, stdout, _ := command(t, "sessions", "list", "--server", d.URL(), "--search", search)
		if code != exitOK || !strings.Contains(stdout, "\nThe two ways  ") {
			t.Errorf("%q: exit %d: %s", search, code, stdout)
		}
	}
	d.Call(t, "PATCH", "/v1/council/"+first.ID, `{"title":""}`)
	code, stdout, stderr = command(t, "sessions", "list", "--server", d.URL(), "--status", "done")
	if code != exitError || stdout != "" || !strings.Contains(stderr, "use one of running") {
		t.Errorf("a wrong status: exit %d: %s%s", code, stdout, stderr)
	}

	code, stdout, _ = command(t, "sessions", "delete", first.ID, "--server", d.URL())
	if code != exitOK || stdout != "session "+first.ID+" is deleted\n" {
		t.Errorf("exit %d: %s", code, stdout)
	}
	_, stdout, _ = command(t, "sessions", "list", "--server", d.URL())
	if strings.Contains(stdout, "Which way?") || !strings.Contains(stdout, "Why?") {
		t.Errorf("after the deletion: %s", stdout)
	}
}

// The daemon of this machine is asked where no other is named.
func TestSessionThatRuns(t *testing.T) {
	address, arrived, release := daemontest.Held(t)
	d := startDaemon(t, map[string]string{"BASE_URL": address, "MODELS": "waiting,quick"})
	t.Setenv("LLM_COUNCIL_ADDR", strings.TrimPrefix(d.URL(), "http://"))
	_, data := d.Call(t, "POST", "/v1/council", `{"query":"Wait?","background":true}`)
	var started council.Summary
	if err := json.Unmarshal(data, &started); err != nil {
		t.Fatal(err)
	}
	<-arrived
	if code, stdout, _ := command(t, "sessions", "list"); code != exitOK || !strings.Contains(stdout, "\nWait?     "+started.ID[:13]+"  running  ") ||
		!strings.HasSuffix(stdout, "  -\n") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	if code, stdout, _ := command(t, "sessions", "show", started.ID); code != exitOK || stdout != "session "+started.ID+": running\n" {
		t.Errorf("exit %d: %q", code, stdout)
	}
	if code, stdout, _ := command(t, "sessions", "delete", started.ID); code != exitOK || !strings.Contains(stdout, "is being cancelled") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	release()
	if _, events := d.Call(t, "GET", "/v1/council/"+started.ID+"/events", ""); !strings.Contains(string(events), `"code":"cancelled"`) {
		t.Errorf("the session goes on: %s", events)
	}
}

// Whatever fails, one line says what, and how to mend it.
func TestSessionsFail(t *testing.T) {
	d := startDaemon(t, map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "API_TOKENS": "0123456789abcdef",
	})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"list"}, {"show", "x"}, {"delete", "x"}} {
		for name, tt := range map[string]struct {
			server, token string
			code          int
			want          string
		}{
			"no daemon": {nobody, "0123456789abcdef", exitError, "no daemon answers at " + nobody},
			"a wrong token": {
				d.URL(), "another-token-000", exitError, "does not know the first token of LLM_COUNCIL_API_TOKENS",
			},
			"no URL": {"http://[", "0123456789abcdef", exitUsage, "--server: "},
			"an unknown session": {
				d.URL(), "0123456789abcdef", exitError, `there is no session "x" of this token: find its id`,
			},
		} {
			if name == "an unknown session" && args[0] == "list" {
				continue
			}
			t.Setenv("LLM_COUNCIL_API_TOKENS", tt.token)
			code, stdout, stderr := command(t, append(append([]string{"sessions"}, args...), "--server", tt.server)...)
			if code != tt.code || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
				t.Errorf("%s, %s: exit %d: %s%s", args[0], name, code, stdout, stderr)
			}
		}
	}
}

// The question comes first, and is cut if the terminal is narrow.
func TestTableOfSessions(t *testing.T) {
	now := time.Date(2026, 8, 1, 9, 30, 0, 0, time.UTC)
	session := func(id string, status council.Status, ago time.Duration, query string, cost *float64) council.Summary {
		return council.Summary{ID: id, Status: status, Created: now.Add(-ago), Query: query, CostUSD: cost}
	}
	sessions := []council.Summary{
		session("01a22804-0fcd-725c-93d1-e9e5aced3d88", council.StatusRunning, 5*time.Second, "Über den Wolken\nmuß die Freiheit wohl grenzenlos sein?", nil),
		session("01a22804-0fcd-7abc-93d1-e9e5aced3d88", council.StatusComplete, 26*time.Hour, "Why?", new(1.254)),
		session("019f2804-0fcd-7abc-93d1-e9e5aced3d88", council.StatusFailed, 72*time.Hour, "Why\x1b[2J not?", new(0.00125)),
	}
	const wide = `QUESTION                                                SESSION          STATUS    AGE  COST
Über den Wolken muß die Freiheit wohl grenzenlos sein?  01a22804-0fcd-72  running   5s   -
Why?                                                    01a22804-0fcd-7a  complete  26h  $1.25
Why[2J not?                                             019f2804-0fcd-7a  failed    3d   $0.0013
`
	const narrow = `QUESTION                        SESSION           STATUS    AGE  COST
Über den Wolken muß die Freih…  01a22804-0fcd-72  running   5s   -
Why?                            01a22804-0fcd-7a  complete  26h  $1.25
Why[2J not?                     019f2804-0fcd-7a  failed    3d   $0.0013
`
	for columns, want := range map[int]string{0: strings.Replace(wide, "SESSION ", "SESSION  ", 1), 72: narrow} {
		if diff := cmp.Diff(want, table(sessions, columns, now)); diff != "" {
			t.Errorf("%d columns: %s", columns, diff)
		}
	}
	if got := table(sessions, 1, now); !strings.Contains(got, "\nÜber den Wolken muß…  01a22804-0fcd-72  running ") {
		t.Errorf("in one column: %s", got)
	}
	if got := shortIDs([]council.Summary{{ID: "same"}, {ID: "same"}}); got[0] != "same" || got[1] != "same" {
		t.Errorf("%q", got)
	}
	if got := age(12 * time.Minute); got != "12m" {
		t.Errorf("12 minutes are %s", got)
	}
}

// The loss of damaged files is taken on the command line, while the daemon may run.
func TestSessionsAccept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	t.Setenv("LLM_COUNCIL_DATA_DIR", filepath.Dir(dir))
	check := func(want int, says string, args ...string) {
		t.Helper()
		code, stdout, stderr := command(t, append([]string{"sessions", "accept"}, args...)...)
		if code != want || !strings.Contains(stdout+stderr, says) {
			t.Errorf("%q: exit %d, %s%s", args, code, stdout, stderr)
		}
	}
	check(exitError, "there are no kept sessions")
	check(exitOK, "Nothing to accept", "--dir", filepath.Dir(dir))
	report := filepath.Join(dir, "damaged-20260102T030405.000000000Z", "report.json")
	if err := os.MkdirAll(filepath.Dir(report), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(report, []byte(`{"at":"2026-01-02T03:04:05Z","lost":[{"Owner":"","Session":"a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	check(exitOK, "Accepted: 1 session that had ended is gone.", "--dir", dir)
	check(exitOK, "Nothing to accept")
	t.Setenv("LLM_COUNCIL_DATA_DIR", "off")
	check(exitUsage, "name a directory with --dir")
}
