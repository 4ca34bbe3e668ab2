package daemon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/faultdisk"
)

// keptIn returns the settings of a daemon that keeps its ledger in a directory.
func keptIn(b *daemontest.Biller, dir string, more map[string]string) map[string]string {
	env := hardSettings(b, map[string]string{
		"COST_LIMITS": "soft", "BIAS_STORE": filepath.Join(dir, "records.jsonl"),
	})
	maps.Copy(env, more)
	return env
}

// reasons returns what /readyz says of a ledger, and its status.
func reasons(t *testing.T, d *daemontest.Daemon) (status int, of map[string]string) {
	t.Helper()
	status, data := d.Call(t, "GET", "/readyz", "")
	var r httpapi.Readiness
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	of = map[string]string{}
	for _, reason := range r.Reasons {
		of[reason.Code] = reason.Message
	}
	return status, of
}

// change has a function change the content of a file.
func change(t *testing.T, name string, do func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, do(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onLine has a function change a line of a file, without its end. Counted from 0, or from the end with -1.
func onLine(n int, do func([]byte) []byte) func([]byte) []byte {
	return func(data []byte) []byte {
		lines := slices.Collect(bytes.Lines(data))
		if n < 0 {
			n += len(lines)
		}
		lines[n] = slices.Concat(do(bytes.TrimRight(lines[n], "\n")), []byte("\n"))
		return bytes.Join(lines, nil)
	}
}

func withoutLine(n int) func([]byte) []byte {
	return func(data []byte) []byte {
		return bytes.Join(slices.Delete(slices.Collect(bytes.Lines(data)), n, n+1), nil)
	}
}

func replaced(old, by string) func([]byte) []byte {
	return func(data []byte) []byte { return bytes.Replace(data, []byte(old), []byte(by), 1) }
}

func inserted(text string) func([]byte) []byte {
	return onLine(1, func(line []byte) []byte { return slices.Concat(line, []byte("\n"+text)) })
}

// A ledger loses lines in every way. Nobody passes over that: neither the daemon nor the command, and they agree. Under hard limits
// of a day no daemon starts on it until somebody accepts the loss.
func TestFaultF54DamagedLedger(t *testing.T) {
	testkit.Slow(t)
	b := daemontest.Bill(t, 0)
	base := t.TempDir()
	var older []byte
	for _, run := range []struct {
		rotate   config.Bytes
		sessions int
	}{{2e3, 16}, {1e6, 3}, {1e6, 2}} { // closed segments, and then two generations of the file
		d := daemontest.Start(t, keptIn(b, base, nil), func(c *config.Config) { c.BiasRotateBytes = run.rotate })
		for range run.sessions {
			d.Ask(t, `{"query":"x"}`)
		}
		d.End(t)
		if run.sessions == 3 {
			var err error
			if older, err = os.ReadFile(filepath.Join(base, "spend.jsonl")); err != nil {
				t.Fatal(err)
			}
		}
	}
	segments, _ := filepath.Glob(filepath.Join(base, "spend.jsonl.0*.zst"))
	whole := daemontest.Ledger(t, filepath.Join(base, "spend.jsonl"))
	if l := whole.Ledger; l.Damaged || l.Expected == nil || *l.Expected != l.Lines || l.Lines != 42 || l.Unchecked != 0 || len(segments) < 2 {
		t.Fatalf("%+v, %d segments", l, len(segments))
	}
	const data, first = "spend.jsonl", "spend.jsonl.000001.zst"
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit := func(name string, do func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			change(t, filepath.Join(dir, name), do)
		}
	}
	cut := func(by int) func([]byte) []byte {
		return func(data []byte) []byte { return data[:len(data)-by] }
	}
	start := map[string]int{} // how often a daemon started, or did not
	for _, tt := range []struct {
		name   string
		damage func(*testing.T, string)
		want   string // part of the problem; "": it is none
	}{
		{"a digit of a cost", edit(data, replaced(`,"usd":0.0`, `,"usd":0.1`)), "1 line cannot be read (bad_checksum, first spend.jsonl line "},
		{"a digit of a day", edit(data, onLine(0, replaced(`"day":"2`, `"day":"3`))), "bad_checksum, first spend.jsonl line 1"},
		{"a letter of a key", edit(data, replaced(`,"usd"`, `,"usc"`)), "bad_checksum"},
		{"the checksum", edit(data, onLine(-1, func(l []byte) []byte { l[len(l)-4] ^= 1; return l })), "bad_checksum"},
		{"the key of the checksum", edit(data, replaced(`"crc"`, `"crd"`)), "no_entry"},
		{"garbage between lines", edit(data, inserted("garbage")), "1 line cannot be read (not_json, first spend.jsonl line 3)"},
		{"JSON of something else", edit(data, inserted(`{"session_id":"1"}`)), "no_entry"},
		{"NULs", edit(data, inserted(strings.Repeat("\x00", 4096))), "not_json"},
		{"a line that is too long", edit(data, inserted(strings.Repeat("x", 100<<10))), "too_long"},
		{"half a line", edit(data, onLine(0, func(l []byte) []byte { return l[:len(l)/2] })), "not_json"},
		{"two lines in one", edit(data, replaced("\n", "")), "at least 1 line is missing"},
		{"a line in two", edit(data, replaced(`,"token"`, ",\n\"token\"")), "not_json, first spend.jsonl line 1"},
		{"a line taken out", edit(data, withoutLine(1)), "at least 1 line is missing"},
		{"cut in the last line", edit(data, cut(9)), "missing"},
		{"the last line taken", edit(data, func(d []byte) []byte { return d[:bytes.LastIndexByte(d[:len(d)-1], '\n')+1] }), "missing"},
		{"emptied", edit(data, func([]byte) []byte { return nil }), "missing"},
		{"renamed as logrotate does", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Rename(filepath.Join(dir, data), filepath.Join(dir, data+".1")); err != nil {
				t.Fatal(err)
			}
		}, "missing"},
		{"an older copy", edit(data, func([]byte) []byte { return older }), "missing"},
		{"a segment taken away", remove(first), "missing"},
		{"a segment emptied", edit(first, func([]byte) []byte { return nil }), "damaged, first " + first},
		{"a segment with a flipped byte", edit(first, func(d []byte) []byte { d[len(d)/2] ^= 4; return d }), "damaged, first " + first},
		{"all of it taken away", func(t *testing.T, dir string) {
			t.Helper()
			for _, name := range segments {
				remove(filepath.Base(name))(t, dir)
			}
			remove(data)(t, dir)
		}, "at least 42 lines are missing"},
		{"the end flipped", edit(data+".end", replaced(`"lines":42`, `"lines":10`)), "bad_checksum, first spend.jsonl.end"},
		{"the end emptied", edit(data+".end", func([]byte) []byte { return nil }), "bad_checksum, first spend.jsonl.end"},

		{"a torn tail", edit(data, func(d []byte) []byte { return append(d, `{"type":"open","da`...) }), ""},
		{"a torn session", edit(data, func(d []byte) []byte {
			return append(d, "{\"type\":\"calls\"}\t\n{\"type\":\"clo"...)
		}), ""},
		{"a line of an earlier release", edit(data, func(d []byte) []byte {
			return append(d, `{"type":"open","day":"2026-11-21","session":"1","token":"","council":"","limit_usd":null}`+"\n"...)
		}), ""},
		{"a crash before the end was written", edit(data+".end", func([]byte) []byte { return spend.End{Lines: 12}.Text() }), ""},
		{"the end taken away, as with a copy to another path", remove(data + ".end"), ""},
		{"ends of lines as Windows has them", edit(data, func(d []byte) []byte { return bytes.ReplaceAll(d, []byte("\n"), []byte("\r\n")) }), ""},
		{"blank lines", edit(data, inserted("")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, dir)
			path := filepath.Join(dir, data)
			found := daemontest.Ledger(t, path).Ledger
			if problem := found.Problem(); found.Damaged != (tt.want != "") || !strings.Contains(problem, tt.want) {
				t.Errorf("%q, want %q", problem, tt.want)
			}
			hard := keptIn(b, dir, map[string]string{"COST_LIMITS": "hard", "MAX_COST_USD_PER_DAY": "9"})
			daemontest.Setenv(t, hard)
			if tt.want != "" {
				refused, err := daemon.New(t.Context(), daemontest.Options(t))
				if err == nil {
					t.Fatal("a daemon with hard limits starts", refused.Close(t.Context()))
				}
				for _, part := range []string{path, "is damaged", found.Problem(), "councild report spend verify", "councild report spend accept"} {
					if strings.Count(err.Error(), part) != 1 || strings.Contains(err.Error(), "\n") {
						t.Errorf("%q is missing in, or not once in: %v", part, err)
					}
				}
				start["refused"]++

				d := daemontest.Start(t, keptIn(b, dir, map[string]string{"MAX_COST_USD_PER_DAY": "9"}))
				status, of := reasons(t, d)
				if status != http.StatusOK || !strings.Contains(of["ledger_damaged"], found.Problem()) || !strings.Contains(d.Log.String(), "damaged") {
					t.Errorf("with soft limits: %d, %q", status, of)
				}
				found := daemontest.Ledger(t, path).Ledger // the daemon has cut a torn tail
				if r := get[spend.Costs](t, d, "/v1/spend?days=0"); r.Ledger.Problem() != found.Problem() {
					t.Errorf("the daemon and the command disagree: %s", cmp.Diff(r.Ledger.Problem(), found.Problem()))
				}
				if _, err := daemon.AcceptLedger(t.Context(), path, slog.New(slog.DiscardHandler)); err == nil {
					t.Error("the loss was accepted while a daemon has the ledger open")
				}
				d.Ask(t, `{"query":"x"}`)
				d.End(t)
				if !daemontest.Ledger(t, path).Ledger.Damaged {
					t.Error("with the next session the damage is forgotten")
				}
				state, err := daemon.AcceptLedger(t.Context(), path, slog.New(slog.DiscardHandler))
				if err != nil || !state.Damaged {
					t.Fatalf("accepting: %+v, %v", state, err)
				}
			}
			d := daemontest.Start(t, hard)
			d.Ask(t, `{"query":"x"}`)
			if status, of := reasons(t, d); status != http.StatusOK || len(of) > 0 {
				t.Errorf("with hard limits: %d, %q", status, of)
			}
			d.End(t)
			after := daemontest.Ledger(t, path).Ledger
			if after.Damaged || (len(after.Accepted) == 1) != (tt.want != "") || after.Torn || after.Expected == nil || *after.Expected != after.Lines {
				t.Errorf("afterwards: %+v", after)
			}
			start["accepted or whole"]++
		})
	}
	daemontest.Fault(t, "F54", "each damage is counted and said; under hard limits no daemon starts on it before it is accepted; no false alarm",
		"%d damaged ledgers: %d starts under hard limits refused; %d starts after an acceptance or on a whole ledger",
		start["refused"], start["refused"], start["accepted or whole"])
}

// The machine crashes before each operation of the disk in turn, and loses what was not synced, in each way. The end of the ledger
// never says more than the ledger has.
func TestFaultF54EndNeverLeads(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	for _, limited := range []string{"", "90"} {
		disk := &faultdisk.Disk{}
		b := daemontest.Bill(t, 0)
		dir := t.TempDir()
		d := daemontest.StartOn(t, disk, keptIn(b, dir, map[string]string{
			"MAX_COST_USD_PER_DAY": limited, "BIAS_PERSISTENCE": "false",
		}), func(c *config.Config) { c.BiasRotateBytes = 6e3 })
		wrote := func() (n int) {
			for _, o := range disk.Done(faultdisk.Rename) {
				if o.To == "spend.jsonl.end" {
					n++
				}
			}
			return n
		}
		for wrote() < 2 {
			d.Ask(t, `{"query":"x"}`)
		}
		d.End(t)
		ops := disk.Done()
		states, known := map[string]bool{}, 0
		for n := range len(ops) + 1 {
			for _, crash := range faultdisk.Crashes() {
				left := crash.After(ops[:n])
				key := fmt.Sprint(left)
				if states[key] {
					continue
				}
				states[key] = true
				dir := t.TempDir()
				for name, data := range left {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				l := daemontest.Ledger(t, filepath.Join(dir, "spend.jsonl")).Ledger
				if l.Damaged {
					t.Fatalf("after %d of %d operations, limit %q: %s", n, len(ops), limited, l.Problem())
				}
				if l.Expected != nil && *l.Expected > 0 {
					known++
				}
			}
		}
		if known == 0 {
			t.Error("the end was never there")
		}
		daemontest.Fault(t, "F54", "no crash makes a whole ledger look damaged", "%d states of the disk, in %d of which the end is known",
			len(states), known)
	}
}

// Another program takes the ledger away, or cuts it, while a daemon runs. That is said by the next session, and at the next start.
func TestFaultF54WhileItRuns(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"renamed": func(path string) error { return os.Rename(path, path+".1") },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"replaced": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("{}\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := daemontest.Start(t, keptIn(daemontest.Bill(t, 0), dir, map[string]string{"MAX_COST_USD_PER_DAY": "9"}))
			d.Ask(t, `{"query":"x"}`)
			path := filepath.Join(dir, "spend.jsonl")
			daemontest.Until(t, func() bool {
				l := daemontest.Ledger(t, path).Ledger
				return l.Expected != nil && *l.Expected == 2
			})
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			d.Ask(t, `{"query":"x"}`)
			daemontest.Until(t, func() bool {
				_, of := reasons(t, d)
				return of["ledger_damaged"] != ""
			})
			d.End(t)
			if l := daemontest.Ledger(t, path).Ledger; !l.Damaged {
				t.Errorf("at the next start: %+v", l)
			}
		})
	}
}

// A ledger that cannot be written makes a daemon unready where a limit of a day needs it, with the cause. It is ready again by itself.
func TestFaultF55LedgerCannotBeWritten(t *testing.T) {
	for _, limit := range []string{"9", ""} {
		disk := &faultdisk.Disk{}
		d := daemontest.StartOn(t, disk, keptIn(daemontest.Bill(t, 0), t.TempDir(), map[string]string{"MAX_COST_USD_PER_DAY": limit}))
		if status, of := reasons(t, d); status != http.StatusOK || len(of) > 0 {
			t.Errorf("at first: %d, %q", status, of)
		}
		disk.Fail(func(o faultdisk.Op, n int) (int, error) {
			if o.Kind == faultdisk.Write && strings.HasPrefix(o.Name, "spend.jsonl") {
				return 0, syscall.ENOSPC
			}
			return n, nil
		})
		want := http.StatusOK
		if limit != "" {
			want = http.StatusServiceUnavailable
		}
		if status, data := d.Call(t, "POST", "/v1/council", `{"query":"x"}`); status != want {
			t.Errorf("limit %q: a session gets %d: %s", limit, status, data)
		}
		daemontest.Until(t, func() bool { _, of := reasons(t, d); return of["ledger"] != "" })
		status, of := reasons(t, d)
		if status != want || !strings.Contains(of["ledger"], "no space left on device") {
			t.Errorf("limit %q: %d, %q", limit, status, of)
		}
		disk.Fail(nil)
		daemontest.Until(t, func() bool { status, of := reasons(t, d); return status == http.StatusOK && len(of) == 0 })
		d.Ask(t, `{"query":"x"}`)
		d.End(t)
		if l := daemontest.Ledger(t, filepath.Join(filepath.Dir(d.Config.BiasStore), "spend.jsonl")).Ledger; l.Damaged || l.Lines != 4 {
			t.Errorf("limit %q: %+v", limit, l)
		}
		daemontest.Fault(t, "F55", "under a limit of a day 503 with the cause, else ready with a remark; ready again by itself",
			"limit of the day %q: %d, %q, and ready again without a session", limit, status, of["ledger"])
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "spend.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t, keptIn(daemontest.Bill(t, 0), dir, nil))
	if status, of := reasons(t, d); status != http.StatusOK || !strings.Contains(of["ledger"], "are not stored") {
		t.Errorf("a ledger that cannot be opened: %d, %q", status, of)
	}
}
