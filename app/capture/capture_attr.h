/* capture_attr.h - attributes: text in the file, checked numbers and choices out. */
#ifndef APP_CAPTURE_ATTR_H
#define APP_CAPTURE_ATTR_H

#include "app/capture/capture.h"

/* Fills c->attrs from the metadata. Needs c->inputs. */
mmla_status capture_attrs_parse(capture *c, mmla_error *err);

#endif
