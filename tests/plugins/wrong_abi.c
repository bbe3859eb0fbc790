/* A shared object from another time. */
#include "providers/provider_ops.h"

extern const struct pai_provider_plugin pai_provider_plugin;
const struct pai_provider_plugin pai_provider_plugin = {
    .abi = PAI_PROVIDER_ABI + 41,
    .name = "wrong",
};
