package store

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// said collects what is logged.
type said struct{ strings.Builder }

func (s *said) log() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// Whoever begins at the same time has one secret, which only its owner may read. Reading makes none.
func TestQuestionSecretIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "records.jsonl")
	if _, err := ReadQuestionSecret(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read before it was made: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading made the directory: %v", err)
	}
	var all sync.Map
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			s, err := OpenQuestionSecret(t.Context(), path, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
			}
			all.Store(s.Secret, s)
		})
	}
	group.Wait()
	count := 0
	all.Range(func(any, any) bool { count++; return true })
	s, err := ReadQuestionSecret(path)
	if _, ok := all.Load(s.Secret); err != nil || count != 1 || !ok || len(s.Secret) != 64 || s.Anew || time.Since(s.Made) > time.Hour {
		t.Errorf("%d secrets were made; %+v, %v", count, s, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Name() != "question.key" {
		t.Fatalf("%v: %v", err, files)
	}
	if info, err := files[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", err, info.Mode())
	}
}

// A file that holds no secret is named with the remedy, and stays as it is.
func TestQuestionSecretThatCannotBeUsed(t *testing.T) {
	good := `{"secret":"` + strings.Repeat("0a", 32) + `","made":"2026-11-28T10:00:00Z"}`
	for name, tt := range map[string]struct {
		file func(name string) error
		want []string
	}{
		"empty":         {holding(""), []string{"damaged", "remove it"}},
		"text":          {holding("a secret\n"), []string{"damaged", "backup"}},
		"too short":     {holding(strings.Replace(good, "0a0a", "0a", 1)), []string{"64 hexadecimal digits", "remove it"}},
		"cut off":       {holding(good[:40]), []string{"damaged", "remove it"}},
		"without time":  {holding(`{"secret":"` + strings.Repeat("0a", 32) + `"}`), []string{"no time", "remove it"}},
		"a list":        {holding("[]"), []string{"damaged", "remove it"}},
		"a directory":   {func(name string) error { return os.Mkdir(name, 0o700) }, []string{"not a regular file", "remove it"}},
		"a link":        {func(name string) error { return os.Symlink("elsewhere", name) }, []string{"symbolic link", "remove it"}},
		"another owner": {owned(good), []string{"another user", "chown", "remove it"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another owner" && os.Geteuid() != 0 {
				return // only root can make such a file
			}
			path := filepath.Join(t.TempDir(), "records.jsonl")
			file := QuestionFile(path)
			if err := tt.file(file); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(file)
			s, err := OpenQuestionSecret(t.Context(), path, slog.New(slog.DiscardHandler))
			if err == nil || s.Secret != "" || !strings.Contains(err.Error(), file) {
				t.Fatalf("%+v, %v", s, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if after, err := os.Lstat(file); err != nil || after.Mode() != before.Mode() || after.Size() != before.Size() {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

func holding(content string) func(name string) error {
	return func(name string) error { return os.WriteFile(name, []byte(content), 0o600) }
}

// owned returns a function that makes a file of another user.
func owned(content string) func(name string) error {
	return func(name string) error { return errors.Join(holding(content)(name), os.Chown(name, 4711, -1)) }
}

// A secret whose file is gone is made anew. Where the records have keys of the one before, that is said.
func TestQuestionSecretIsMadeAnew(t *testing.T) {
	for keyed, want := range map[bool]bool{false: false, true: true} {
		path := filepath.Join(t.TempDir(), "records.jsonl")
		o := Options{Path: path, RotateBytes: 1} // the record is in a closed segment
		s, _, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		records := session("s")
		for i := range records {
			records[i].QuestionKey = nil
			if keyed {
				records[i].QuestionKey = new("0123456789abcdef")
			}
		}
		if err := errors.Join(s.Append(t.Context(), records), s.Close()); err != nil {
			t.Fatal(err)
		}
		var log said
		secret, err := OpenQuestionSecret(t.Context(), path, log.log())
		if err != nil || secret.Anew != want || strings.Contains(log.String(), "level=WARN") != want || !strings.Contains(log.String(), "question.key") {
			t.Errorf("records with keys: %v: %+v, %v, log %s", keyed, secret, err, log.String())
		}
		log.Reset()
		if err := os.Chmod(QuestionFile(path), 0o640); err != nil {
			t.Fatal(err)
		}
		again, err := OpenQuestionSecret(t.Context(), path, log.log())
		if err != nil || again != secret || !strings.Contains(log.String(), "chmod 600") {
			t.Errorf("%+v, %v, log %s", again, err, log.String())
		}
	}
}
