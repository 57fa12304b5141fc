/* `megamla check --quick`, as a user runs it. */
#include "app/cli/cmd.h"

int main(void) {
    char verb[] = "check", quick[] = "--quick";
    char *argv[] = {verb, quick, 0};
    return cmd_check(2, argv);
}
