#!/usr/bin/env bash
# Follow an execution until its work is done, then roll it back to the end of a codon.
#
#     examples/clients/follow.sh EXECUTION CODON
#
# Needs jq, and a program that connects a WebSocket to stdin and stdout: websocat, or a Python with
# the websockets package, as in every environment of Hankweave (PYTHON names it). It ends when the
# connection is lost; to reconnect as the other two clients do, send the last seq as `sinceSeq`.
set -euo pipefail

if [ $# != 2 ]; then
    echo "usage: follow.sh EXECUTION CODON" >&2
    exit 2
fi
execution="$1" codon="$2" folder="$1/.hankweave"

end() {
    echo "$2" >&2
    exit "$1"
}

has_websockets() { "$1" -c 'import websockets' 2>/dev/null; }

# One frame per line. sed removes the decoration that the Python program adds.
by_lines() {
    local python top
    top="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
    if command -v websocat >/dev/null; then
        websocat --text --exit-on-eof --buffer-size 67108864 "$1"
        return
    fi
    for python in "${PYTHON:-}" "$top/.venv/bin/python" python3; do
        if [ -n "$python" ] && has_websockets "$python"; then
            "$python" -m websockets "$1" | sed --unbuffered -n $'s/^.*\e\\[L< //p'
            return
        fi
    done
    echo '{"type": "no tool"}'
}

# One line of three words for each frame; absent ones are "-". "over" is an end of work: after the
# other two ways to idle the plan may go on by itself.
words='
def row: map(. // "-" | tostring | gsub("[\n\u001f]"; " ")) | join("\u001f");
def number($list): .data.totals[$list] // (.data[$list] | length); # Long lists are incomplete.
if .type == "handshake.response" then [.type, .data.totalEvents, .data.clientId]
elif .type == "codon.started" or .type == "codon.completed" then [.type, .seq, .data.codonId]
elif .type == "server.idle" and (.data.reason | IN("startup", "rollback-completed") | not) then
  ["over", .seq, .data.message]
elif .type == "server.idle" then [.type, .seq, .data.message]
elif .type == "command.failed" then [.type, "-", "\(.data.code): \(.data.message) \(.data.hint // "")"]
elif .type == "command.succeeded" then [.type, .data.safety.checkpointSha,
  "\(number("added")) added, \(number("updated")) updated, \(number("removed")) removed"]
else [.type, .seq, "-"] end | row'

command -v jq >/dev/null || end 69 "follow.sh needs jq."
[ -r "$folder/runtime.lock" ] && [ -r "$folder/server.token" ] || end 69 "No server holds $execution."
port="$(jq -e .port "$folder/runtime.lock")" || end 69 "The server of $execution does not listen yet."
coproc wire { by_lines "ws://127.0.0.1:$port/ws" | jq --unbuffered -r "$words"; }
exec {in}<&"${wire[0]}" {out}>&"${wire[1]}"

# The token comes from its file, and stands in no list of processes.
jq -nc --rawfile token "$folder/server.token" '{type: "handshake", data: {
    mode: "readandwrite", protocolVersion: 1, sinceSeq: 0, clientName: "follow.sh",
    token: ($token | rtrimstr("\n"))}}' >&"$out" || true

live_from=0 last_seq=0 is_over="" asked=""
while IFS=$'\x1f' read -r type seq text <&"$in"; do
    case "$type" in
        handshake.response)
            live_from="$seq"
            echo "connected as $text" ;;
        codon.started | codon.completed)
            is_over=""
            echo "$seq $type $text" ;;
        server.idle)
            echo "$seq $type $text" ;;
        over)
            is_over=yes
            echo "$seq server.idle $text" ;;
        command.failed)
            end 1 "$text" ;;
        command.succeeded)
            echo "back at the end of $codon: $text"
            [ "$seq" = - ] || echo "what was there is kept in $seq"
            exit 0 ;;
        "no tool")
            end 69 "follow.sh needs websocat, or PYTHON=… naming a Python with websockets." ;;
    esac
    case "$type" in
        handshake.response) ;;
        *) [ "$seq" = - ] || last_seq="$seq" ;;
    esac
    # What lies before this is the past: work may have gone on there.
    if [ -n "$is_over" ] && [ -z "$asked" ] && [ "$last_seq" -ge "$live_from" ]; then
        asked="follow-$$-$RANDOM"
        jq -nc --arg id "$asked" --arg codon "$codon" '{id: $id, type: "rollback.toCodon",
            data: {codonId: $codon, checkpointType: "end", reason: "An example went back."}}' >&"$out"
    fi
done
end 69 "The server went away."
