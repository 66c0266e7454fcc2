#!/usr/bin/env bash
# Start the double-clickable app on a Mac that has nothing else of rdchat: MLX loads, Metal computes a product, the
# default model answers, and a window opens on a double-click and closes. Takes the disk image, or the app itself, and
# the oldest macOS that it is for (14.4 where none is given). What the app logs is copied to logs/.
# Not tried on a Mac.
set -euo pipefail

fail() {
    echo "$1" >&2
    [ ! -f "${log:-}" ] || tail -n 50 "$log" >&2
    exit 1
}
trap 'fail "Line $LINENO failed: $BASH_COMMAND"' ERR

# A resource is busy now and then.
retry_hdiutil() {
    for _ in 1 2 3 4; do
        hdiutil "$@" && return
        sleep 5
    done
    hdiutil "$@"
}

place="$(cd "$(mktemp -d)" && pwd -P)" # /var is /private/var to the running app, which `pgrep` looks for
case "$1" in
*.dmg)
    retry_hdiutil attach -quiet -nobrowse -readonly -mountpoint "$place/image" "$1"
    cp -R "$place/image/rdchat.app" "$place/"
    retry_hdiutil detach -quiet "$place/image"
    app="$place/rdchat.app"
    ;;
*) app="$1" ;;
esac
program="$app/Contents/MacOS/rdchat"
export RDCHAT_DATA_DIR="$place/data" RDCHAT_CACHE_DIR="$place/cache"
log="$RDCHAT_DATA_DIR/logs/rdchat.log"
trap '[ ! -d "${log%/*}" ] || cp -R "${log%/*}" .' EXIT

wanted="${2:-14.4}"
oldest="$(plutil -extract LSMinimumSystemVersion raw "$app/Contents/Info.plist")"
[ "$oldest" = "$wanted" ] || fail "The app says that it runs on macOS $oldest, not $wanted."
[ "$(lipo -archs "$program")" = arm64 ] || fail "The app is not for arm64 alone: $(lipo -archs "$program")."
plutil -extract CFBundleDocumentTypes json -o - "$app/Contents/Info.plist" | grep -q PDF || fail "It opens no PDF files."
plutil -extract CFBundleURLTypes json -o - "$app/Contents/Info.plist" | grep -q rdchat || fail "It opens no addresses."
[ -z "$(find "$app" -name '*.dSYM')" ] || fail "It holds debug files."
codesign --verify --deep --strict "$app" || fail "The signature does not hold."

found="$("$program" doctor --json)" || fail "doctor failed."
echo "$found"
case "$found" in *'"backend": "Metal"'*) ;; *) fail "MLX does not compute on Metal." ;; esac
variant="\"mlx_variant\": \"${wanted%%.*}.0\""
case "$found" in *"$variant"*) ;; *) fail "The app does not have the build of MLX for macOS ${wanted%%.*}." ;; esac

# The child processes for pip and the tokenizer are the app itself; a window that one of them opened would never end.
reply="$("$program" ask --max-tokens 8 "Why is the sky blue?")" || fail "There was no reply."
[ -n "$reply" ] || fail "The reply is empty."
echo "Reply: $reply"

open -n --env "RDCHAT_DATA_DIR=$RDCHAT_DATA_DIR" --env "RDCHAT_CACHE_DIR=$RDCHAT_CACHE_DIR" "$app"
for _ in $(seq 120); do
    grep -qs "The window is on the screen" "$log" && break
    sleep 1
done
grep -qs "The window is on the screen" "$log" || fail "No window was shown within two minutes."
windows="$(pgrep -fx "$program" | wc -l | tr -d ' ')"
[ "$windows" = 1 ] || fail "$windows windows were opened, not one."
pkill -TERM -fx "$program"
for _ in $(seq 30); do
    pgrep -fx "$program" >/dev/null || break
    sleep 1
done
! pgrep -fx "$program" >/dev/null || fail "The app did not end on SIGTERM."
echo "The app computes on Metal, replies, and shows its window."
