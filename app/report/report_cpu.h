/* report_cpu.h - which processor a result is of. */
#ifndef APP_REPORT_REPORT_CPU_H
#define APP_REPORT_REPORT_CPU_H

#include <stdio.h>

enum { REPORT_CPU_BYTES = 128 };

/* The processor's own name, from where Linux keeps it; "" elsewhere. */
void report_cpu_name(char out[REPORT_CPU_BYTES]);

/* The same from text in the form of /proc/cpuinfo. */
void report_cpu_name_read(FILE *from, char out[REPORT_CPU_BYTES]);

#endif
