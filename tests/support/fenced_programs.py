"""Programs that have to work unmodified inside a fence, as scripts for bash.

Each runs in a work tree of its own and ends with 0 if the program did its work.
"""

from __future__ import annotations

PROGRAMS: dict[str, tuple[str, str]] = {
    "git": (
        "git",
        """
        git init -q repository && cd repository
        git config user.email a@example.org && git config user.name A
        echo one > file && git add file && git commit -qm one
        echo two > file && git commit -qam two
        git -c protocol.file.allow=always clone -q . ../clone && git gc -q
        test "$(git -C ../clone log --format=%s | head -1)" = two
        """,
    ),
    "python with venv and pip": (
        "python3",
        """
        python3 - <<'EOF'
import zipfile
with zipfile.ZipFile("thing-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("thing.py", "VALUE = 42\\n")
    info = "thing-1.0.dist-info"
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\n"
                   "Tag: py3-none-any\\n")
    wheel.writestr(f"{info}/RECORD", "")
EOF
        python3 -m venv environment
        environment/bin/pip install -q --no-index ./thing-1.0-py3-none-any.whl
        test "$(environment/bin/python -c 'import thing; print(thing.VALUE)')" = 42
        """,
    ),
    "multiprocessing": (
        "python3",
        """
        cat > work.py <<'EOF'
import multiprocessing, os, pty, tempfile
def square(number):
    return number * number
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    primary, secondary = pty.openpty()
    os.write(secondary, b"x")
    assert os.read(primary, 1) == b"x"
    assert os.cpu_count()
EOF
        python3 work.py
        """,
    ),
    "local servers": (
        "python3",
        """
        python3 - <<'EOF'
import socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
connection, _ = listener.accept()
connection.sendall(b"hello")
assert client.recv(5) == b"hello"
here = socket.socket(socket.AF_UNIX)
here.bind("door")
here.listen()
socket.socket(socket.AF_UNIX).connect("door")
datagrams = socket.socket(type=socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
socket.getaddrinfo("localhost", 80)
EOF
        """,
    ),
    "gcc and make": (
        "make",
        """
        printf 'int main(void) { return 0; }' > main.c
        printf 'main: main.c\\n\\tgcc -O2 -pipe -o main main.c\\n' > Makefile
        make -s && ./main
        """,
    ),
    "gcc with temporary files": (
        "gcc",
        "printf 'int main(void) { return 0; }' > main.c && gcc -o main main.c && ./main",
    ),
    "node": (
        "node",
        """
        node -e '
            const { Worker } = require("worker_threads");
            require("fs").writeFileSync("made", "x");
            if (require("os").cpus().length == 0) throw new Error("no processors");
            new Worker("require(\\"worker_threads\\").parentPort.postMessage(42)", { eval: true })
                .on("message", (value) => process.exit(value == 42 ? 0 : 1));
        '
        """,
    ),
    "npm": (
        "npm",
        """
        export npm_config_update_notifier=false
        mkdir package && cd package && npm init -y > /dev/null
        echo 'module.exports = 42' > index.js && npm pack --silent && cd ..
        npm init -y > /dev/null
        npm install --silent --no-audit --no-fund --offline ./package/package-1.0.0.tgz
        node -e 'process.exit(require("package") == 42 ? 0 : 1)'
        """,
    ),
    "cargo": (
        "cargo",
        "cargo init -q --vcs none --name thing . && cargo build -q --offline && target/debug/thing",
    ),
    "go": (
        "go",
        """
        printf 'package main\\nfunc main() {}\\n' > main.go
        go mod init thing && go build -o thing && ./thing
        """,
    ),
    "bash with job control": (
        "bash",
        """
        set -m
        sleep 600 & kill -STOP %1 && kill -CONT %1 && kill %1
        wait %1 || test $? = 143
        cat <(echo process substitution) <<< "a here string" > /dev/null
        (ulimit -n 64 && nice -n 5 true)
        """,
    ),
    "ps and friends": (
        "ps",
        """
        ps aux > /dev/null && df . > /dev/null && id > /dev/null && date > /dev/null
        seq 100000 | sort -rn | head -1 | grep -q 100000
        find . -newer /etc/passwd > /dev/null
        """,
    ),
    "archives": (
        "tar",
        "mkdir a && echo x > a/b && tar czf a.tgz a && rm -r a && tar xzf a.tgz && test -f a/b",
    ),
    "ssh": ("ssh", "ssh -G example.org > /dev/null && ssh-keygen -q -t ed25519 -N '' -f key"),
    "strace of its own": ("strace", "strace -f -o trace true && grep -q exited trace"),
}
