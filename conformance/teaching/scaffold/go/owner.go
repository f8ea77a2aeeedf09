// My commit owner.
//
// What is here at the beginning: the loop, the answer to Hello, the file tools, and Observe, Plant and Remove, by which the
// kit sees and changes the log. Everything else is yours to write: one method of Owner for each operation, which returns the
// answer. An operation that is not here is answered "unsupported".
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const name = "my-owner"

// What the owner promises: see "Profiles" on the page TEST_YOUR_OWNER.md.
var profiles = []string{"core", "version-0-by-owner", "staged"}

// What the owner knows of one table.
type tableState struct {
	name string // what clients call it
	log  string // its folder _delta_log
}

type Owner struct {
	NotImplemented
	tables map[string]*tableState // by the table's reference, which is Table in later requests
}

func (owner *Owner) Hello(Hello) Answer {
	return Identity{
		Name:             name,
		Version:          "1",
		InterfaceVersion: 1,
		Side:             "owner",
		Profiles:         profiles,
		Features:         List[string]{"managedCommit"},
		CommitModes:      map[string]List[string]{"managedCommit": {"staged"}},
	}
}

// The eyes and hands of the kit, for tables in a folder of this machine

// Observe lists the log as an external observer sees it. A file that is not text has no content.
func (owner *Owner) Observe(request Observe) Answer {
	log, files := owner.logOf(request.Table), []LogFile{}
	must(filepath.WalkDir(log, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		relative, _ := filepath.Rel(log, path)
		file := LogFile{Name: filepath.ToSlash(relative), Size: int64(len(content))}
		if utf8.Valid(content) {
			text := string(content)
			file.Content = &text
		}
		files = append(files, file)
		return err
	}))
	return Observation{Files: files}
}

// Plant writes a file past the owner, as another process would.
func (owner *Owner) Plant(request Plant) Answer {
	file := filepath.Join(owner.logOf(request.Table), request.File)
	if !request.IfAbsent {
		removeIfPresent(file)
	}
	if putIfAbsent(file, request.Content) {
		return Done{}
	}
	return Conflict{}
}

func (owner *Owner) Remove(request Remove) Answer {
	removeIfPresent(filepath.Join(owner.logOf(request.Table), request.File))
	return Done{}
}

// Of a table of this owner, or of one that the kit makes at a path.
func (owner *Owner) logOf(reference string) string {
	if table, known := owner.tables[reference]; known {
		return table.log
	}
	return filepath.Join(reference, "_delta_log")
}

// Tools

// The folder for everything that must survive a restart.
var home = cmp.Or(os.Getenv("CONFORMANCE_DIRECTORY"), filepath.Join(os.TempDir(), fmt.Sprint(name, "-", os.Getpid())))

// A version in the name of a file.
func digits(version int64) string { return fmt.Sprintf("%020d", version) }

// Create a whole, durable file. False: there is one already, and it stays as it is.
func putIfAbsent(path, text string) bool {
	folder, temporary := filepath.Dir(path), path+".tmp"
	must(os.MkdirAll(folder, 0o777))
	removeIfPresent(temporary) // of a crash; it may be a link to the file
	file, err := os.Create(temporary)
	must(err)
	_, err = file.WriteString(text)
	must(errors.Join(err, file.Sync(), file.Close()))
	linked := os.Link(temporary, path) // fails if the file exists: the one atomic step
	must(os.Remove(temporary))
	if errors.Is(linked, fs.ErrExist) {
		return false
	}
	must(linked)
	opened, err := os.Open(folder)
	must(err)
	must(errors.Join(opened.Sync(), opened.Close()))
	return true
}

func removeIfPresent(path string) {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		must(err)
	}
}

// The content of a commit's file: one action, already JSON, on each line.
func contentOf(actions []string) string {
	return strings.Join(append(actions, ""), "\n")
}

// The same actions; the metadata names this owner, so that writers know where to send requests.
func withOwner(actions []string) []string {
	named := []string{}
	for _, text := range actions {
		var action map[string]map[string]any
		must(json.Unmarshal([]byte(text), &action))
		if metadata, is := action["metaData"]; is {
			metadata["configuration"].(map[string]any)["delta.managedCommit.commitOwner"] = name
			changed, err := json.Marshal(action)
			must(err)
			text = string(changed)
		}
		named = append(named, text)
	}
	return named
}

// The owner cannot continue after an error of the disk: it ends, and the kit shows why.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The loop: a call on each line of the standard input, a reply on each line of the standard output
func main() {
	owner := &Owner{tables: map[string]*tableState{}}
	calls, replies := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var call struct {
			ID      int64           `json:"id"`
			Request json.RawMessage `json:"request"`
		}
		err := calls.Decode(&call)
		if errors.Is(err, io.EOF) {
			return
		}
		must(err)
		answered, err := answer(owner, call.Request)
		must(err)
		must(replies.Encode(map[string]any{"id": call.ID, "answer": answered}))
	}
}
