# As root the device is one of our own: a command that took it for a file would rename over it.
device=/dev/full
if mknod full c 1 7 2>/dev/null && (true >full) 2>/dev/null; then
    device=full
elif [ "$(id -u)" -eq 0 ]; then
    echo 'megamla run: full: cannot be written: No space left on device' >&2
    exit 1 # no devices here, nothing to try
fi
"$MEGAMLA" run "$SRC/examples/captures/window_list.safetensors" -o "$device"
status=$?
[ -c "$device" ] || echo "$device is no device any more"
exit $status
