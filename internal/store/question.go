package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/councild/councild/internal/disk"
)

// QuestionSecret is the key of the hashes that show which sessions asked the same question. It never leaves the
// machine. On a cluster, all nodes share it.
type QuestionSecret struct {
	Secret string    `json:"secret"` // 64 hexadecimal digits
	Made   time.Time `json:"made"`   // UTC
	// Anew says that the older records in the same directory have keys from another secret. If a question of these
	// older records is asked again, it is not recognised.
	Anew bool `json:"anew"`
}

var validSecret = regexp.MustCompile(`^[0-9a-f]{64}$`)

// QuestionFile returns the path of question.key, the file with the secret. It is in the directory of the record
// file at path.
func QuestionFile(path string) string {
	return filepath.Join(filepath.Dir(Resolve(path)), "question.key")
}

// NewQuestionSecret returns a secret for the records at path. It writes nothing.
func NewQuestionSecret(ctx context.Context, path string) QuestionSecret {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // It never fails.
	return QuestionSecret{Secret: hex.EncodeToString(secret), Made: time.Now().UTC(), Anew: hasQuestionKeys(ctx, path)}
}

// ReadQuestionSecret returns the secret of the record file at path. It never makes a secret. If there is none, the
// error matches fs.ErrNotExist.
func ReadQuestionSecret(path string) (QuestionSecret, error) {
	s, _, err := readQuestionSecret(path)
	return s, err
}

// OpenQuestionSecret returns the secret of the record file at path, and makes one if there is none. Processes that
// call it at the same time get the same secret. If OpenQuestionSecret returns an error, it has changed no file, and
// the error names the remedy.
func OpenQuestionSecret(ctx context.Context, path string, log *slog.Logger) (QuestionSecret, error) {
	s, err := OwnQuestionSecret(ctx, path, log)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	name := QuestionFile(path)
	if err = makeDir(filepath.Dir(name)); err == nil {
		err = NewQuestionSecret(ctx, path).create(name)
	}
	if err != nil {
		return QuestionSecret{}, fmt.Errorf("making the secret of question keys: %w; "+
			"let this process write to that directory", err)
	}
	if s, err = OwnQuestionSecret(ctx, path, log); err == nil {
		s.Tell(ctx, path, log)
	}
	return s, err
}

// Tell logs that the secret was made.
func (s QuestionSecret) Tell(ctx context.Context, path string, log *slog.Logger) {
	if s.Anew {
		log.WarnContext(ctx, "the records have question keys, but their secret is gone, and another one was made: "+
			"the report will not see when the next sessions repeat an earlier question; to avoid that, stop, restore the file "+
			"from a backup, and start again", "file", QuestionFile(path))
		return
	}
	log.InfoContext(ctx, "made the secret of question keys; back it up with the records", "file", QuestionFile(path))
}

// OwnQuestionSecret is ReadQuestionSecret for a process that makes keys with the secret. It refuses a file that
// belongs to another user.
func OwnQuestionSecret(ctx context.Context, path string, log *slog.Logger) (QuestionSecret, error) {
	s, info, err := readQuestionSecret(path)
	switch name := QuestionFile(path); {
	case err != nil:
		return QuestionSecret{}, err
	case disk.Foreign(info):
		return QuestionSecret{}, fmt.Errorf("%s belongs to another user, who may know the secret: make this "+
			"process's user its owner (chown), or remove it to have another secret made", name)
	case info.Mode().Perm()&0o077 != 0:
		log.WarnContext(ctx, "other users of this machine can read the secret of question keys: restrict the file "+
			"with chmod 600",
			"file", name, "mode", info.Mode().Perm().String())
	}
	return s, nil
}

// Keep replaces the secret of the record file at path.
func (s QuestionSecret) Keep(path string) error {
	if err := disk.Replace(disk.OS{}, QuestionFile(path), s.Encode()); err != nil {
		return fmt.Errorf("keeping the secret of question keys: %w; let this process write to that directory", err)
	}
	return nil
}

// Encode returns the content of the file with the secret.
func (s QuestionSecret) Encode() []byte {
	data, _ := json.Marshal(s) //nolint:gosec // this file keeps the secret; every value of s can be encoded
	return append(data, '\n')
}

// create writes the secret to a new file. If another process has made the file first, create leaves that file and
// returns nil.
func (s QuestionSecret) create(name string) error {
	next := name + "." + rand.Text() + ".tmp" // No other process uses this name.
	f, err := disk.OS{}.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(s.Encode())
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Link(next, name) // A rename would replace the file of another process.
	}
	if err = errors.Join(err, os.Remove(next)); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errors.Join(err, disk.OS{}.SyncDir(filepath.Dir(name)))
}

func readQuestionSecret(path string) (s QuestionSecret, info fs.FileInfo, err error) {
	name := QuestionFile(path)
	f, err := disk.OpenRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, err
	}
	var data []byte
	if err == nil {
		defer f.Close()
		if info, err = f.Stat(); err == nil {
			data, err = io.ReadAll(io.LimitReader(f, 1<<12))
		}
	}
	if err == nil {
		s, err = ParseQuestionSecret(data)
	}
	if err != nil {
		return QuestionSecret{}, nil, fmt.Errorf("reading the secret of question keys in %s: %w; restore the file "+
			"from a backup, let this process read it, or remove it to have another secret made", name, err)
	}
	return s, info, nil
}

// ParseQuestionSecret reads the content that Encode returns.
func ParseQuestionSecret(data []byte) (s QuestionSecret, err error) {
	if err := json.Unmarshal(bytes.TrimSpace(data), &s); err != nil {
		return QuestionSecret{}, fmt.Errorf("it is damaged: %w", err)
	}
	if !validSecret.MatchString(s.Secret) || s.Made.IsZero() {
		return QuestionSecret{}, errors.New("it is damaged: it has no secret of 64 hexadecimal digits, " +
			"or no time at which it was made")
	}
	return s, nil
}

// hasQuestionKeys reports whether a record in the newest file that holds records has a question key.
func hasQuestionKeys(ctx context.Context, path string) bool {
	for f, err := range Files(path) {
		if err != nil {
			return false
		}
		some := false
		for record, err := range f.Records(ctx) {
			some = some || err == nil
			if err == nil && record.QuestionKey != nil {
				return true
			}
		}
		if some {
			return false
		}
	}
	return false
}
