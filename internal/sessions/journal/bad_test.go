package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// files returns the files of a directory with their content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			all[path] = string(data)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fails opens a journal, which must fail with an error of one line that has all words.
func fails(t *testing.T, o Options, words ...string) {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err == nil {
		closeJournal(t, j)
		t.Fatalf("opened, want an error with %q", words)
	}
	t.Log(err)
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in the error %q", word, err)
		}
	}
	if strings.Contains(err.Error(), "geheim") {
		t.Errorf("the error tells the password: %q", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has more than one line: %q", err)
	}
}

func TestBadDirectory(t *testing.T) {
	t.Parallel()
	kept := func(t *testing.T, o Options) {
		t.Helper()
		j, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		appended(t, j, one, 0, message(j, 1, "x"))
		closeJournal(t, j)
	}
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		open(t, o)
		fails(t, o, o.Dir, "another daemon holds")
	})
	t.Run("a file", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		if err := os.WriteFile(o.Dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		fails(t, o, o.Dir, "not a directory", "name a directory")
	})
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		o.Key = "right"
		kept(t, o)
		before := files(t, o.Dir)
		o.Key = "wrong"
		fails(t, o, o.Dir, "key")
		o.Key = ""
		fails(t, o, o.Dir, "key")
		after := files(t, o.Dir)
		for path, data := range before {
			if after[path] != data && !strings.HasSuffix(path, "lock") {
				t.Errorf("%s was changed", path)
			}
		}
		o.Key = "right"
		if log, err := open(t, o).Read(t.Context(), one); err != nil || len(log) != 1 {
			t.Errorf("with the right key again: %d messages, %v", len(log), err)
		}
	})
	for name, damage := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 3) },
		"removed": os.Remove,
	} {
		for _, file := range []string{"meta.inf", "meta.sum"} {
			t.Run(file+" "+name, func(t *testing.T) {
				t.Parallel()
				for _, keys := range [][2]string{{"", ""}, {"", "secret"}, {"secret", "secret"}, {"secret", ""}} {
					o := inside(t)
					o.Key = keys[0]
					kept(t, o)
					o.Key = keys[1]
					path := filepath.Join(o.Dir, storeDir, "$G", "streams", "COUNCIL_SESSIONS", file)
					if err := damage(path); err != nil {
						t.Fatal(err)
					}
					if keys != [2]string{} {
						fails(t, o, o.Dir, "COUNCIL_SESSIONS", "move the directory away")
						continue
					}
					if log, err := open(t, o).Read(t.Context(), one); err != nil || len(log) != 1 {
						t.Errorf("%d messages, %v", len(log), err)
					}
				}
			})
		}
	}
	t.Run("larger and smaller", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		kept(t, o)
		for _, o.MaxBytes = range []int64{128 << 20, 1} {
			j, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if log, err := j.Read(t.Context(), one); err != nil || len(log) != 1 {
				t.Errorf("%d messages, %v", len(log), err)
			}
			closeJournal(t, j)
		}
	})
}

func TestBadCluster(t *testing.T) {
	t.Parallel()
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		o.URL = "nats://user:geheim@127.0.0.1:1"
		fails(t, o, "127.0.0.1:1", "see that the address is right")
	})
	t.Run("no address", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		o.URL = "nats://user:geheim@host:port"
		fails(t, o, "write it as nats://")
	})
	t.Run("prefix", func(t *testing.T) {
		t.Parallel()
		o := inside(t)
		o.URL, o.Prefix = "nats://127.0.0.1:1", "a.b"
		fails(t, o, "prefix", "a.b")
	})
	t.Run("no CA", func(t *testing.T) {
		t.Parallel()
		o := outside(t)
		o.CA = filepath.Join(t.TempDir(), "none.pem")
		fails(t, o, "none.pem", "can be read")
	})
	t.Run("bad credentials", func(t *testing.T) {
		t.Parallel()
		o := outside(t)
		o.Creds = "no credentials"
		fails(t, o, "credentials")
	})
	t.Run("other settings", func(t *testing.T) {
		t.Parallel()
		o := outside(t)
		open(t, o)
		o.Replicas = 1
		fails(t, o, "replicas", "3", "1", strings.ToUpper(o.Prefix)+"_SESSIONS")
		o.Replicas = 3
		o.MaxBytes *= 2
		open(t, o)
	})
	t.Run("too many replicas", func(t *testing.T) {
		t.Parallel()
		o := outside(t)
		o.Replicas = 5
		fails(t, o, "replicas")
	})
	for name, change := range map[string]func(*server.Options){
		"no JetStream":      func(o *server.Options) { o.JetStream = false },
		"small max_payload": func(o *server.Options) { o.MaxPayload = 1000 },
		"wrong password":    func(o *server.Options) { o.Username, o.Password = "a", "b" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			so := server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, JetStream: true, StoreDir: t.TempDir()}
			change(&so)
			s, err := server.NewServer(&so)
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
			t.Cleanup(func() { stopEngine(s) })
			if !s.ReadyForConnections(time.Minute) {
				t.Fatal("not started")
			}
			o := inside(t)
			o.URL, o.Replicas = s.ClientURL(), 1
			fails(t, o, map[string][]string{
				"no JetStream": {"JetStream is enabled"}, "small max_payload": {"max_payload"}, "wrong password": {"credentials"},
			}[name]...)
		})
	}
}
