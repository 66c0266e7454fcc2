#!/usr/bin/env bash
# In a workflow on a Mac: put the signing certificate and the account that notarises where codesign and Briefcase look.
# Reads CERTIFICATE (base64 of a .p12), CERTIFICATE_PASSWORD, APPLE_ID, APPLE_PASSWORD and TEAM. Not tried on a Mac.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
keychain="$HOME/Library/Keychains/rdchat-signing.keychain-db"
password="$(openssl rand -hex 16)"

printf '%s' "$CERTIFICATE" | base64 --decode >"$folder/certificate.p12"
security create-keychain -p "$password" "$keychain"
security set-keychain-settings -lut 21600 "$keychain"
security unlock-keychain -p "$password" "$keychain"
security import "$folder/certificate.p12" -k "$keychain" -P "$CERTIFICATE_PASSWORD" -T /usr/bin/codesign
security set-key-partition-list -S apple-tool:,apple: -s -k "$password" "$keychain" >/dev/null
# The first one is searched first, and is where notarytool keeps what it stores.
security list-keychains -d user -s "$keychain" login.keychain-db
security default-keychain -s "$keychain"
# Briefcase asks notarytool for a profile of this name.
xcrun notarytool store-credentials "briefcase-macOS-$TEAM" \
    --apple-id "$APPLE_ID" --password "$APPLE_PASSWORD" --team-id "$TEAM"
