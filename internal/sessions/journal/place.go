package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/councild/councild/internal/disk"
)

// lockFile is a file in the directory of an engine. The process that uses the directory locks it.
const lockFile = "lock"

// dirHeld is the directory of the engine, which this process has locked.
type dirHeld struct {
	lock, dir *disk.Lock // dir is nil if the system cannot lock directories
	files     []held
	// block is the highest block number in the stream of logs.
	block int
}

// held is a file or a directory, as it was when the engine opened it.
type held struct {
	path string
	info fs.FileInfo
}

// lockDir makes and locks the directory. holds says whether an engine has kept something in the directory.
func (j *Journal) lockDir() (holds bool, err error) {
	dir := j.o.Dir
	err = os.MkdirAll(dir, 0o700)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(dir)
	}
	if err == nil && disk.Foreign(info) {
		return false, fmt.Errorf("opening the sessions in %s: the directory belongs to another user, who could read "+
			"and change them; make this process's user its owner (chown), or name another directory", dir)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700) //nolint:gosec // a directory needs the right to search
	}
	if err != nil {
		return false, fmt.Errorf("opening the sessions in %s: %w; name a directory that this process may write to",
			dir, err)
	}
	j.o.Dir = dir
	var p dirHeld
	if p.lock, err = disk.TryLock(filepath.Join(dir, lockFile)); err == nil {
		// Lock the directory too, so that a second process cannot start after a user has removed the lock file.
		if p.dir, err = disk.TryLockDir(dir); err != nil {
			err = errors.Join(err, p.lock.Close())
		}
	}
	if errors.Is(err, disk.ErrLocked) {
		return false, fmt.Errorf("opening the sessions in %s: another daemon holds the directory; "+
			"stop it or name another directory", dir)
	}
	if err == nil {
		j.mu.Lock()
		j.place = p
		j.mu.Unlock()
		if holds, err = used(dir); err != nil {
			err = errors.Join(err, j.leaveDir())
		}
	}
	if err != nil {
		return false, fmt.Errorf("opening the sessions in %s: %w; %s", dir, err, mendDir)
	}
	return holds, nil
}

// leaveDir unlocks the directory.
func (j *Journal) leaveDir() (err error) {
	j.mu.Lock()
	p := j.place
	j.place = dirHeld{}
	j.mu.Unlock()
	for _, lock := range []*disk.Lock{p.dir, p.lock} {
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
	}
	return err
}

// used reports whether an engine has kept something in a directory. It returns true even if the engine's own files were
// removed.
func used(dir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, endsFile)); err == nil {
		return true, nil
	}
	names, err := os.ReadDir(filepath.Join(dir, storeDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(names) > 0, err
}

// enter prepares the directory before the engine is opened. unread says that enter has not read the blocks, because
// the last engine was closed cleanly.
func (j *Journal) enter() (unread bool, err error) {
	if j.o.URL != "" {
		return false, nil
	}
	if err := j.inPlace(); err != nil {
		j.o.Log.Error("another program replaced the directory of kept sessions: "+
			"they begin again with what is at that path now", "error", err)
		if err := j.leaveDir(); err != nil {
			return false, err
		}
		if _, err := j.lockDir(); err != nil {
			return false, err
		}
		list, err := streams(j.o.Dir)
		// When the old engine stopped, it wrote its state to this path, which is now another directory. This state may
		// not match the blocks in that directory. The new engine rebuilds the state from the blocks.
		for _, s := range list {
			err = errors.Join(err, s.removeState())
		}
		if err != nil {
			return false, err
		}
	}
	if !j.entered {
		j.entered = true
		j.worked, err = readWorking(j.o.Dir)
	}
	unread = os.Remove(filepath.Join(j.o.Dir, closedFile)) == nil
	if err == nil && !unread {
		err = j.repair()
	}
	if err == nil {
		err = j.readDamage()
	}
	if err == nil {
		err = j.working.begin(j.o.Dir)
	}
	if err != nil {
		return false, fmt.Errorf("opening the sessions in %s: %w; %s", j.o.Dir, err, mendDir)
	}
	return unread, nil
}

// reconcile compares the index with the ended sessions that an earlier process noted (see compareEnds). It also notes
// the files that inPlace checks.
func (j *Journal) reconcile() error {
	if j.o.URL != "" {
		return nil
	}
	if err := j.compareEnds(); err != nil {
		return err
	}
	dir := j.o.Dir
	var files []held
	for _, path := range []string{dir, filepath.Join(dir, lockFile), filepath.Join(streamDir(dir, j.o.stream(sessionsName)), messagesDir)} {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		files = append(files, held{path, info})
	}
	j.mu.Lock()
	j.place.files = files
	j.place.block = 0
	j.mu.Unlock()
	return nil
}

var errNoDir = errors.New("their directory could not be opened again")

// inPlace checks that the files that the engine has open are still at their paths. If a file is not, inPlace returns an
// error, because the next process would not find what the engine stores.
func (j *Journal) inPlace() error {
	if j.o.URL != "" {
		return nil
	}
	j.mu.Lock()
	files := j.place.files
	locked := j.place.lock != nil
	j.mu.Unlock()
	if !locked {
		return errNoDir
	}
	for _, h := range files {
		if now, err := os.Lstat(h.path); err != nil || !os.SameFile(h.info, now) {
			return fmt.Errorf("another program removed or replaced %s", h.path)
		}
	}
	return nil
}

// lookAfter checks that the files are in place. It reads whether an operator has accepted damage, and writes endsFile
// again when that file is large. The argument sessions is the number of sessions in the index.
func (j *Journal) lookAfter(sessions int) error {
	if err := j.inPlace(); err != nil || j.o.URL != "" {
		return err
	}
	dir := streamDir(j.o.Dir, j.o.stream(sessionsName))
	names, err := filepath.Glob(filepath.Join(dir, messagesDir, "*"+blockSuffix))
	if err != nil {
		return err
	}
	newest := 0
	for _, name := range names {
		newest = max(newest, blockNumber(name))
	}
	j.mu.Lock()
	before := j.place.block
	damaged := len(j.damages) > 0
	j.place.block = newest
	j.mu.Unlock()
	if newest < before { // The engine never removes the newest block.
		return fmt.Errorf("another program removed the file %d%s of kept sessions", before, blockSuffix)
	}
	if damaged {
		if err := j.readDamage(); err != nil {
			return err
		}
	}
	if j.ends.large(sessions) {
		return j.ends.renew(j.o.Dir, j.index, j.LostPart)
	}
	return nil
}

// noteClosed notes that no engine has the files open. Without this note, the next start reads all block files before it
// opens the engine.
func (j *Journal) noteClosed() {
	if j.inPlace() == nil {
		_ = os.WriteFile(filepath.Join(j.o.Dir, closedFile), nil, 0o600)
	}
}
